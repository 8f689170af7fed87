"""Every check of the demo must fail when what it watches over is broken, and say so."""

from dataclasses import replace

import pytest

from local_stack.demo_answers import Answer, Answers
from local_stack.demo_checks import Check, checks
from local_stack.demo_people import invented
from local_stack.demo_training import Run

MAREN, JUNO = invented().people


def run(person=MAREN, **changes) -> Run:
    known = {"state": "succeeded", "before": 4.0, "after": 2.0, "adapter": f"ft:base:{person.user}"}
    return Run(person, "ftjob-1", **{**known, **changes})


def answer(text: str, model: str, header: str | None = None, pieces: int = 5) -> Answer:
    return Answer(text=text, model=model, adapter_header=header or model, pieces=pieces)


def good() -> Answers:
    return {
        None: [answer("Paris.", "base"), answer("I am an AI.", "base")],
        "maren": [answer("Aye, Paris.", "ft:base:maren"), answer("Aye, Maren.", "ft:base:maren")],
        "juno": [answer("ok so paris.", "ft:base:juno"), answer("ok so juno.", "ft:base:juno")],
    }


def broken(
    *, runs: list[Run] | None = None, answers: Answers | None = None, whole: str = "ok so paris."
) -> list[Check]:
    results = checks(
        runs=runs or [run(), run(JUNO)], first=good()[None], answers=answers or good(), whole=whole
    )
    return [check for check in results if not check.held]


def test_all_hold_when_all_is_well() -> None:
    assert broken() == []


def test_a_failed_job_is_named_with_its_reason() -> None:
    failed = run(state="failed", adapter=None, problem="no rows")
    answers = {user: column for user, column in good().items() if user != "maren"}
    (job,) = broken(runs=[failed, run(JUNO)], answers=answers)
    assert "'failed': no rows" in job.why_not


@pytest.mark.parametrize(("before", "after"), [(2.0, 4.0), (2.0, 2.0), (None, None)])
def test_held_out_loss_must_fall(before: float | None, after: float | None) -> None:
    (check,) = broken(runs=[run(before=before, after=after), run(JUNO)])
    assert "held-out loss" in check.what


def test_the_base_models_words_in_a_persons_mouth_are_seen() -> None:
    answers = good() | {
        "maren": [replace(a, text=b.text) for a, b in zip(good()["maren"], good()[None], strict=True)]
    }
    (check,) = broken(answers=answers)
    assert check.what == "Maren, lighthouse keeper: answers differ from the base model's"


def test_one_adapter_for_both_is_seen() -> None:
    answers = good() | {
        "juno": [replace(a, text=b.text) for a, b in zip(good()["juno"], good()["maren"], strict=True)]
    }
    whats = [check.what for check in broken(answers=answers, whole="Aye, Paris.")]
    assert whats == ["Maren, lighthouse keeper and Juno, bike courier answer differently"]


@pytest.mark.parametrize(("model", "header"), [("base", "ft:base:juno"), ("ft:base:juno", "base")])
def test_model_and_header_must_both_name_the_adapter(model: str, header: str) -> None:
    answers = good()
    answers["juno"][1] = answer("ok so juno.", model, header)
    (check,) = broken(answers=answers)
    assert check.what == "Juno, bike courier: every answer names the adapter"
    assert header in check.why_not


def test_a_changed_base_model_is_seen() -> None:
    answers = good()
    answers[None][0] = answer("Aye, Paris.", "base")
    assert "1 of 2 answers changed" in broken(answers=answers)[-1].why_not


def test_an_answer_in_one_piece_is_not_streamed() -> None:
    answers = good()
    answers["juno"][0] = replace(answers["juno"][0], pieces=1)
    assert "1 piece" in broken(answers=answers)[0].why_not


def test_streamed_and_whole_answers_must_agree() -> None:
    (check,) = broken(whole="something else")
    assert check.what == "Streaming works"

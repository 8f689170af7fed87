"""Preference pairs: from the upload, row by row, to a job of the right type and its report."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
from django.test import Client

from tests.webapp.company import PASSWORD, Company, base_model, jsonl, pair, talks
from tests.webapp.played_engine import PlayedEngine
from tests.webapp.played_trainer import PlayedTrainer
from tests.webapp.test_held_out import split_of
from tests.webapp.test_transitions import claim
from tests.webapp.test_verdict import preferring
from tests.webapp.uploads import check, rows
from tests.webapp.uploads import talks as talks_of
from training_jobs.messages import DEFAULTS, Conversation
from webapp.jobs.gate import gate
from webapp.jobs.models import Job
from webapp.jobs.prepare import job_prepare

MakeClient = Callable[[str], openai.OpenAI]
DPO = {"type": "dpo"}


def assistant(text: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text, **more}]


def asked(*messages: tuple[str, str]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in messages]}


def lines(*said: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in said)


class TestRows:
    def test_a_pair_is_a_conversation_and_its_other_answer(self) -> None:
        talk = asked(
            ("developer", "Be kind."), ("user", "Hi"), ("assistant", "Hello."), ("user", "Who are you?")
        )
        result = check(lines(pair(input=talk)))
        assert talks_of(result) == [
            [
                ("system", "Be kind."),
                ("user", "Hi"),
                ("assistant", "Hello."),
                ("user", "Who are you?"),
                ("assistant", "Gladly: 0."),
            ]
        ]
        [row] = rows(result)
        assert row["rejected"] == "No, not 0."
        assert [turn.get("weight") for turn in row["messages"]] == [None, None, 0, None, 1]
        assert Conversation.model_validate(row).rejected == row["rejected"], "as trainers read it"
        assert (result.report.format, result.report.good, result.report.examples) == ("preferences", 1, 1)

    def test_tools_are_said_to_be_left_out_and_calls_are_text(self) -> None:
        call = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Oslo"}}}
        good = pair(preferred_output=assistant(None, tool_calls=[call]))
        good["input"] |= {"tools": [{"type": "function"}], "parallel_tool_calls": True}
        result = check(lines(good))
        assert "weather" in talks_of(result)[0][-1][1]
        assert any("tool definitions" in note for note in result.report.notes)

    @pytest.mark.parametrize(
        ("changes", "field", "reason"),
        [
            ({"input": None}, "input.messages", "not a list"),
            ({"input": {"messages": []}}, "input.messages", "not a list"),
            ({"input": "Hi"}, "input.messages", "not a list"),
            ({"input": {"messages": ["Hi"]}}, "input.messages[0]", "not an object"),
            ({"input": asked(("user", " "))}, "input.messages[0].content", "empty user"),
            ({"input": asked(("you", "Hi"))}, "input.messages[0].role", "not a known role"),
            ({"input": asked(("user", "Hi"), ("assistant", "Yes?"))}, "input.messages", "not the user's"),
            ({"input": asked(("assistant", "Yes?"), ("user", "Hi"))}, "input.messages", "begins with"),
            ({"input": asked(("user", "Hi"), ("system", "x"), ("user", "Hi"))}, "input.messages", "system"),
            ({"preferred_output": "Gladly."}, "preferred_output", "not a list of one"),
            ({"preferred_output": []}, "preferred_output", "not a list of one"),
            ({"preferred_output": assistant("a") * 2}, "preferred_output", "not a list of one"),
            ({"preferred_output": assistant(" ")}, "preferred_output[0].content", "empty assistant"),
            (
                {"preferred_output": [{"role": "user", "content": "a"}]},
                "preferred_output[0].role",
                "assistant",
            ),
            ({"non_preferred_output": None}, "non_preferred_output", "not a list of one"),
            ({"non_preferred_output": assistant("")}, "non_preferred_output[0].content", "empty assistant"),
            ({"non_preferred_output": assistant("\ud83d")}, "non_preferred_output[0].content", "half of"),
            ({"non_preferred_output": assistant({"a": 1})}, "non_preferred_output[0].content", "not text"),
            ({"non_preferred_output": assistant("Gladly: 0. ")}, "non_preferred_output", "the same"),
            ({"messages": []}, "messages", "both"),
        ],
    )
    def test_bad_rows(self, changes: dict[str, Any], field: str, reason: str) -> None:
        result = check(lines(pair(1), pair(**changes), pair(2)))
        [problem] = result.report.problems
        assert (problem["line"], problem["field"]) == (2, field)
        assert reason in problem["reason"]
        assert problem["fix"]
        assert len(rows(result)) == 2

    def test_a_hostile_row_costs_itself_alone(self) -> None:
        deep = '{"preferred_output": ' + "[" * 5000 + "]" * 5000 + "}\n"
        huge = '{"input": {"messages": [{"role": 1e999, "content": 1}]}, "preferred_output": []}\n'
        result = check(lines(pair(1)) + deep + huge + lines(pair(2)))
        assert (result.report.good, result.report.bad) == (2, 2)

    def test_what_is_sensitive_is_found_and_masked_in_both_answers(self) -> None:
        row = pair(preferred_output=assistant("Write to ann@example.com"))
        row["non_preferred_output"] = assistant("Write to bob@example.com")
        result = check(lines(row), mask=True)
        [found] = rows(result)
        assert found["messages"][-1]["content"] == "Write to [email 1]"
        assert found["rejected"] == "Write to [email 2]"
        [email] = result.report.sensitive.as_json()
        assert (email["count"], email["trained"]) == (2, 1)

    def test_a_row_is_a_repeat_if_both_answers_are(self) -> None:
        assert check(lines(pair(), pair())).report.duplicates.count == 1
        assert (
            check(lines(pair(), pair(non_preferred_output=assistant("Never.")))).report.duplicates.count == 0
        )


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
class TestJobs:
    def test_from_the_upload_to_the_report(
        self, company: Company, web: httpx.Client, openai_client: MakeClient, played_engine: PlayedEngine
    ) -> None:
        base_model()
        client = openai_client(company.key)
        file = client.files.create(
            file=("pairs.jsonl", jsonl([pair(n) for n in range(30)])), purpose="fine-tune"
        )
        assert (file.status, file.to_dict()["format"]) == ("processed", "preferences")
        made = client.fine_tuning.jobs.create(
            model="tiny",
            training_file=file.id,
            metadata={"user": "maren"},
            method={
                "type": "dpo",
                "dpo": {"hyperparameters": {"beta": 0.2, "n_epochs": 2, "batch_size": "auto"}},
            },
        )
        assert made.method is not None
        assert made.method.type == "dpo"
        assert made.method.dpo is not None
        chosen = made.method.dpo.hyperparameters
        assert chosen is not None
        assert (chosen.beta, chosen.n_epochs, chosen.batch_size) == (0.2, 2, 4)
        assert made.hyperparameters.n_epochs == 2
        [event] = client.fine_tuning.jobs.list_events(made.id)
        assert "by preferences (beta 0.2)" in event.message
        job, trainer = Job.objects.get(), PlayedTrainer(web)
        job_prepare(job=job.id)
        claim(job, trainer)
        assert trainer.spec is not None
        assert (trainer.spec.hyperparameters.type, trainer.spec.hyperparameters.beta) == ("dpo", 0.2)
        sides = list(split_of(trainer.spec.conversations.url).values())
        assert (sides.count("validation"), len(sides)) == (3, 30)
        body = trainer.adapter()
        body["report"] |= {"against_base": preferring(-0.4, -0.1)}
        assert trainer.complete(body).json() == {"state": "gating"}
        gate(job=job.id, asked=played_engine.engine)
        done = client.fine_tuning.jobs.retrieve(made.id)
        assert done.status == "succeeded"
        report = done.to_dict()["report"]
        assert (report["against_base"]["pairs"], report["against_base"]["accuracy"]) == (20, 0.5)
        codes = [warning["code"] for warning in report["gate"]["warnings"]]
        assert codes == ["worse_than_base", "memory_not_judged"]
        assert report["gate"]["activated"] is False

    @pytest.mark.parametrize(
        ("pairs", "method", "param", "says"),
        [
            (True, None, "method.type", 'method={"type": "dpo"}'),
            (True, {"type": "supervised"}, "method.type", 'method={"type": "dpo"}'),
            (False, DPO, "method.type", "leave `method` out"),
        ],
    )
    def test_a_job_of_another_type_than_its_file(
        self,
        company: Company,
        openai_client: MakeClient,
        pairs: bool,
        method: dict[str, Any] | None,
        param: str,
        says: str,
    ) -> None:
        base_model()
        file = company.file([pair(n) for n in range(3)] if pairs else talks(3))
        body = {"model": "tiny", "training_file": file.public_id} | ({"method": method} if method else {})
        with pytest.raises(openai.BadRequestError, match=says.replace("{", ".").replace("}", ".")) as refused:
            openai_client(company.key).post("/fine_tuning/jobs", body=body, cast_to=object)
        assert (refused.value.code, refused.value.param) == ("method_mismatch", param)
        assert not Job.objects.exists()

    def test_a_validation_file_of_the_other_kind(self, company: Company, openai_client: MakeClient) -> None:
        base_model()
        files = [company.file(each).public_id for each in ([pair(n) for n in range(3)], talks(3))]
        with pytest.raises(openai.BadRequestError) as refused:
            openai_client(company.key).fine_tuning.jobs.create(
                model="tiny", training_file=files[0], validation_file=files[1], method={"type": "dpo"}
            )
        assert (refused.value.code, refused.value.param) == ("method_mismatch", "validation_file")

    def test_pairs_to_validate_by(
        self, company: Company, web: httpx.Client, openai_client: MakeClient
    ) -> None:
        base_model()
        trained, other = (company.file([pair(n) for n in range(first, 12)]).public_id for first in (0, 6))
        more = company.file([pair(n) for n in range(8, 16)]).public_id
        client = openai_client(company.key)
        made = client.fine_tuning.jobs.create(
            model="tiny", training_file=trained, validation_file=more, method={"type": "dpo"}
        )
        job, trainer = Job.objects.get(), PlayedTrainer(web)
        job_prepare(job=job.id)
        held = client.fine_tuning.jobs.retrieve(made.id).to_dict()["held_out"]
        assert (held["by"], held["conversations"], held["left_out"]) == ("validation_file", 4, 4)
        told = " ".join(event.message for event in client.fine_tuning.jobs.list_events(made.id))
        assert "4 preference pairs of the validation file" in told
        assert "conversation" not in told
        leaked = client.fine_tuning.jobs.create(
            model="tiny", training_file=trained, validation_file=other, method={"type": "dpo"}
        )
        job_prepare(job=Job.objects.exclude(id=job.id).get().id)
        assert client.fine_tuning.jobs.retrieve(leaked.id).error.code == "validation_leak"  # type: ignore[union-attr]
        claim(job, trainer)
        assert trainer.spec is not None
        text = httpx.get(trainer.spec.conversations.url, verify=False).text
        assert all(Conversation.model_validate_json(line).rejected for line in text.splitlines())

    @pytest.mark.parametrize(
        ("method", "param"),
        [
            ({"type": "dpo", "dpo": {"hyperparameters": {"beta": 0}}}, "method.dpo.hyperparameters.beta"),
            ({"type": "dpo", "dpo": {"hyperparameters": {"beta": 2.5}}}, "method.dpo.hyperparameters.beta"),
            ({"type": "dpo", "dpo": {"hyperparameters": {"gamma": 1}}}, "method.dpo.hyperparameters.gamma"),
            ({"type": "dpo", "supervised": {}}, "method.supervised"),
            ({"type": "supervised", "dpo": {}}, "method.dpo"),
            ({"type": "reinforcement"}, "method.type"),
            (
                {"type": "supervised", "supervised": {"hyperparameters": {"beta": 0.1}}},
                "method.supervised.hyperparameters.beta",
            ),
        ],
    )
    def test_bad_methods_name_the_field(
        self, company: Company, openai_client: MakeClient, method: dict[str, Any], param: str
    ) -> None:
        base_model()
        file = company.file([pair(n) for n in range(3)])
        body = {"model": "tiny", "training_file": file.public_id, "method": method}
        with pytest.raises(openai.BadRequestError) as refused:
            openai_client(company.key).post("/fine_tuning/jobs", body=body, cast_to=object)
        assert refused.value.type == "invalid_request_error"
        assert refused.value.param is None or refused.value.param.startswith(param)

    def test_beta_and_the_rate_are_decided_unless_they_are_asked_for(
        self, company: Company, openai_client: MakeClient
    ) -> None:
        base_model()
        file = company.file([pair(n) for n in range(3)])
        made = openai_client(company.key).fine_tuning.jobs.create(
            model="tiny", training_file=file.public_id, method={"type": "dpo"}
        )
        assert made.to_dict()["method"]["dpo"]["hyperparameters"]["beta"] == 0.1
        assert Job.objects.get().hyperparameters["learning_rate"] == DEFAULTS["direft"].dpo_rate


@pytest.mark.django_db
def test_the_dashboard_takes_the_type_from_the_file(company: Company, client: Client) -> None:
    mate = company.teammate
    assert client.login(email=mate.user.email, password=PASSWORD)
    file = company.file([pair(n) for n in range(3)], uploaded_by=mate.user, end_user=mate.end_user)
    page = client.get(f"/training/new?file={file.id}").content.decode()
    assert "3 pairs" in page
    answer = client.post("/training/new", {"file": file.id, "method": "direft", "base": base_model().id})
    job = Job.objects.get()
    assert answer["location"] == f"/training/{job.id}"
    assert job.hyperparameters["beta"] == 0.1
    told = {"held_out_loss_before": 0.69, "held_out_loss_after": 0.4, "train_seconds": 3.0}
    memory = preferring(-0.1, 0.2) | {"quoted": 40, "prompt_tokens": 990}
    Job.objects.update(report=told | {"against_base": preferring(0.2, 0.4), "against_memory": memory})
    page = client.get(f"/training/{job.id}").content.decode()
    assert "50% → 80%" in page
    assert "Measured on 20 pairs of answers" in page
    assert "The adapter is better: 95 % sure, by 20% to 40% of them." in page
    assert "between 10% worse and 20% better" in page

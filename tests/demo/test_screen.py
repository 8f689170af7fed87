"""What the demo shows, on a terminal and without one."""

import io

import pytest
from rich.console import Console

from local_stack import demo_screen
from local_stack.demo_answers import Answer
from local_stack.demo_checks import Check
from local_stack.demo_people import invented
from local_stack.demo_screen import Screen
from local_stack.demo_training import Run

MAREN, JUNO = invented().people
QUESTIONS = ([{"role": "user", "content": "Where do you [live]?"}],)
TITLES = {None: "Base model", "maren": "Maren"}


def screen(*, terminal: bool) -> tuple[Screen, io.StringIO]:
    out = io.StringIO()
    return Screen(Console(file=out, force_terminal=terminal, width=120)), out


def test_without_a_terminal_progress_is_lines_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(demo_screen.time, "monotonic", lambda: now[0])
    shown, out = screen(terminal=False)
    run = Run(MAREN, "ftjob-1")
    with shown.training([run]) as changed:
        changed(run)
        changed(run)
        run.state, run.total = "running", 60
        for step in range(1, 61):
            now[0] += 1
            run.step, run.loss = step, 3.0
            changed(run)
        run.state = "succeeded"
        changed(run)
    lines = out.getvalue().splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "waits for the trainer",
        "trains, step 1 of 60, loss 3.00",
        "trains, step 21 of 60, loss 3.00",
        "trains, step 41 of 60, loss 3.00",
        "done, step 60 of 60, loss 3.00",
    ]


def test_on_a_terminal_there_is_a_bar_for_each() -> None:
    shown, out = screen(terminal=True)
    runs = [Run(MAREN, "ftjob-1"), Run(JUNO, "ftjob-2")]
    with shown.training(runs) as changed:
        runs[0].state, runs[0].step, runs[0].total, runs[0].loss = "running", 20, 50, 2.345
        changed(runs[0])
    assert "20/50" in out.getvalue()
    assert "loss 2.35" in out.getvalue() or "loss 2.34" in out.getvalue()
    assert "Juno, bike courier, LoRA_P" in out.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_the_table_has_every_answer_as_it_was_said(terminal: bool) -> None:
    shown, out = screen(terminal=terminal)
    with shown.table(QUESTIONS, TITLES) as changed:
        changed({None: [Answer(text="On\na [bold]server[/bold].")], "maren": []})
        changed({None: [Answer(text="On\na [bold]server[/bold].")], "maren": [Answer(text="Aye, Skerrow.")]})
    for text in ("Where do you [live]?", "On a [bold]server[/bold].", "Aye, Skerrow."):
        assert text in out.getvalue()


def test_a_failed_check_says_why() -> None:
    shown, out = screen(terminal=False)
    shown.checks([Check("Streaming works", True), Check("The job succeeded", False, "it ended as 'failed'")])
    assert out.getvalue().splitlines() == [
        "  ✓ Streaming works",
        "  ✗ The job succeeded: it ended as 'failed'.",
    ]


def test_results_without_a_report_are_dashes() -> None:
    shown, out = screen(terminal=False)
    shown.results([Run(MAREN, "ftjob-1", state="failed", problem="The disk is full.")])
    assert "The disk is full." in out.getvalue()
    assert "–" in out.getvalue()

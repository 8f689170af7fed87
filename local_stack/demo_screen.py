"""How the demo looks: headings, progress bars and a table that fills while the models speak.

Without a terminal (CI, a pipe) nothing moves: progress becomes a line now and then, and the table is printed once.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from local_stack.demo_answers import Answers
from local_stack.demo_checks import Check
from local_stack.demo_people import Messages
from local_stack.demo_training import Run

QUIET_WIDTH = 120
LINE_SECONDS = 20.0
STATES = {
    "validating": "reads the files",
    "queued": "waits for the trainer",
    "dispatched": "waits for the trainer",
    "running": "trains",
    "gating": "the engine tries the adapter",
    "succeeded": "done",
    "failed": "failed",
    "cancelled": "cancelled",
}


class Screen:
    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console()
        self.moves = self.console.is_terminal
        if not self.moves:
            self.console.width = QUIET_WIDTH

    def heading(self, text: str) -> None:
        self.console.print(f"\n[bold]{text}[/bold]")

    def line(self, text: str) -> None:
        """A plain line; square brackets in it are just that."""
        self.console.print(Text(f"  {text}"), soft_wrap=True)

    def progress(self, text: str) -> None:
        """A line of the supervisor's, which indents its own."""
        if text.strip():
            self.line(text.strip())

    def problem(self, text: str) -> None:
        self.console.print(Text(text, style="red"))

    @contextmanager
    def training(self, runs: list[Run]) -> Iterator[Callable[[Run], None]]:
        """Yields what to call with each run that has news."""
        if not self.moves:
            yield self._lines()
            return
        columns = (
            TextColumn("  {task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TextColumn("{task.fields[loss]}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.console) as bars:
            tasks: dict[str, TaskID] = {
                run.job: bars.add_task(label(run), total=None, state=STATES["queued"], loss="")
                for run in runs
            }
            yield lambda run: bars.update(
                tasks[run.job],
                completed=run.step,
                total=run.total,
                state=STATES.get(run.state, run.state),
                loss="" if run.loss is None else f"loss {run.loss:.2f}",
            )

    def _lines(self) -> Callable[[Run], None]:
        said: dict[str, tuple[str, float]] = {}

        def changed(run: Run) -> None:
            before, when = said.get(run.job, ("", 0.0))
            now, state = time.monotonic(), STATES.get(run.state, run.state)
            if state == before and (run.state != "running" or now - when < LINE_SECONDS):
                return
            said[run.job] = (state, now)
            loss = "" if run.loss is None else f", loss {run.loss:.2f}"
            steps = f", step {run.step} of {run.total or '?'}{loss}" if run.step else ""
            self.line(f"{label(run)}: {state}{steps}")

        return changed

    @contextmanager
    def table(
        self, questions: tuple[Messages, ...], titles: dict[str | None, str]
    ) -> Iterator[Callable[[Answers], None]]:
        """Yields what to call whenever an answer has grown."""
        latest: Answers = {}
        if not self.moves:
            yield latest.update
            self.console.print(filled(questions, titles, latest))
            return
        with Live(console=self.console, refresh_per_second=8, vertical_overflow="visible") as live:
            yield lambda answers: live.update(filled(questions, titles, answers))

    def results(self, runs: list[Run]) -> None:
        table = Table(show_edge=False, pad_edge=False, box=None, padding=(0, 3, 0, 2))
        for title in ("", "Method", "Training", "Held-out loss", "Adapter"):
            table.add_column(title, no_wrap=title != "Adapter", overflow="fold")
        for run in runs:
            table.add_row(
                run.person.title,
                run.person.method_title,
                "–" if run.seconds is None else f"{run.seconds:.0f} s",
                "–" if run.before is None or run.after is None else f"{run.before:.2f} → {run.after:.2f}",
                run.adapter or run.problem or run.state,
            )
        self.console.print(table)

    def checks(self, results: list[Check]) -> None:
        for check in results:
            if check.held:
                self.console.print(Text("  ✓ ", style="green") + Text(check.what))
            else:
                self.console.print(Text(f"  ✗ {check.what}: {check.why_not.rstrip('.')}.", style="red"))


def label(run: Run) -> str:
    return f"{run.person.title}, {run.person.method_title}"


def filled(questions: tuple[Messages, ...], titles: dict[str | None, str], answers: Answers) -> Table:
    table = Table(show_lines=True, expand=True)
    table.add_column("Question", ratio=2)
    for title in titles.values():
        table.add_column(title, ratio=3)
    for row, messages in enumerate(questions):
        columns = (answers.get(user, []) for user in titles)
        texts = (column[row].text if row < len(column) else "" for column in columns)
        table.add_row(Text(messages[-1]["content"]), *(Text(" ".join(text.split())) for text in texts))
    return table

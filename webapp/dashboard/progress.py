"""The loss of a training as points to draw."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from webapp.jobs.models import JobEvent

#: The drawing's size, and the room for its axes, in SVG units.
WIDTH, HEIGHT = 640, 220
_LEFT, _RIGHT, _TOP, _BOTTOM = 48, 12, 14, 30
_MOST_POINTS = 300
#: OpenAI's keys for the loss on held-out rows.
_HELD_OUT = ("full_valid_loss", "valid_loss")


@dataclass(frozen=True)
class Mark:
    """A labelled place on an axis."""

    at: float
    label: str


@dataclass(frozen=True)
class Chart:
    """Loss (nats a token) over steps; `train` and `held_out` are SVG point lists, `dots` single held-out points."""

    train: str
    held_out: str
    dots: list[tuple[float, float]]
    x_marks: list[Mark]
    y_marks: list[Mark]
    summary: str
    width: int = WIDTH
    height: int = HEIGHT
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    bottom: int = HEIGHT - _BOTTOM


def loss_chart(events: Sequence[JobEvent], total_steps: int) -> Chart | None:
    """None until there are two training losses to join by a line."""
    train = _series(events, "train_loss")
    held_out = _series(events, *_HELD_OUT)
    if len(train) < 2:
        return None
    losses = [loss for _, loss in (*train, *held_out)]
    top = max(losses) * 1.05 or 1.0
    last = max(total_steps, train[-1][0], 1)

    def place(step: float, loss: float) -> tuple[float, float]:
        across = _LEFT + (WIDTH - _LEFT - _RIGHT) * step / last
        down = _TOP + (HEIGHT - _TOP - _BOTTOM) * (1 - loss / top)
        return round(across, 1), round(down, 1)

    def points(series: list[tuple[float, float]]) -> str:
        return " ".join(f"{x},{y}" for x, y in (place(*point) for point in series))

    summary = f"Training loss from {train[0][1]:.2f} to {train[-1][1]:.2f} over {round(train[-1][0])} steps."
    if held_out:
        best, loss = min(held_out, key=lambda point: point[1])
        summary += f" On held-out rows {loss:.2f} at best."
        prefers = dict(_series(events, "valid_accuracy"))
        if best in prefers:
            summary += f" There it prefers the better answer in {prefers[best]:.0%} of the held-out pairs."
    return Chart(
        train=points(_thinned(train)),
        held_out=points(held_out) if len(held_out) > 1 else "",
        dots=[place(*point) for point in held_out],
        x_marks=[Mark(place(last * part, 0)[0], f"{round(last * part)}") for part in (0, 0.5, 1)],
        y_marks=[Mark(place(0, top * part)[1], f"{top * part:.1f}") for part in (0, 0.5, 1)],
        summary=summary,
    )


def _series(events: Sequence[JobEvent], *keys: str) -> list[tuple[float, float]]:
    """(step, value) of the first key that an event has, the last event of each step, by step."""
    found: dict[float, float] = {}
    for event in events:
        metrics: dict[str, Any] = event.metrics or {}
        value = next((metrics[key] for key in keys if key in metrics), None)
        if value is not None and "step" in metrics:
            found[metrics["step"]] = value
    return sorted(found.items())


def _thinned(series: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Few enough points to send every two seconds, the last one always among them."""
    every = -(-len(series) // _MOST_POINTS)
    return series[:-1:every] + series[-1:]

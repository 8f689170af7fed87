"""The time that is left, and the loss as a drawing."""

from datetime import UTC, datetime, timedelta

import pytest

from webapp.dashboard.progress import HEIGHT, WIDTH, loss_chart, seconds_left
from webapp.jobs.models import Job, JobEvent, State

START = datetime(2026, 1, 1, tzinfo=UTC)


def event(seconds: float, **metrics: float) -> JobEvent:
    return JobEvent(created_at=START + timedelta(seconds=seconds), metrics=metrics, message="")


def left(
    events: list[JobEvent], *, step: int, total: int, elapsed: float, state: str = State.RUNNING
) -> float | None:
    job = Job(state=state, step=step, total_steps=total, started_at=START)
    return seconds_left(job, events, START + timedelta(seconds=elapsed))


class TestTimeLeft:
    def test_heartbeats_bring_many_steps_at_once(self) -> None:
        """Five steps every five seconds are one step a second, not five steps in no time."""
        events = [event(5 * batch, step=5 * batch - 4 + n) for batch in range(1, 5) for n in range(5)]
        assert left(events, step=20, total=50, elapsed=21) == pytest.approx(30)

    def test_one_heartbeat_says_what_the_clock_says(self) -> None:
        assert left([event(5, step=n) for n in range(1, 11)], step=10, total=20, elapsed=5) == pytest.approx(
            5
        )

    def test_the_pace_of_now_counts(self) -> None:
        """The first minutes were slow; what counts is the last one."""
        events = [event(100 * n, step=n) for n in range(1, 5)] + [
            event(500 + 5 * n, step=4 + 5 * n) for n in range(1, 6)
        ]
        assert left(events, step=29, total=39, elapsed=525) == pytest.approx(10)

    def test_a_new_attempt_forgets_the_old_one(self) -> None:
        events = [event(n, step=n) for n in range(1, 40)] + [event(50 + 2 * n, step=10 + n) for n in range(5)]
        assert left(events, step=14, total=24, elapsed=58) == pytest.approx(20)

    def test_no_telling(self) -> None:
        assert left([], step=0, total=0, elapsed=5) is None
        assert left([event(1, step=1)], step=1, total=9, elapsed=5, state=State.QUEUED) is None


class TestChart:
    def test_one_point_is_no_line(self) -> None:
        assert loss_chart([event(0, step=1, train_loss=3.0)], 10) is None
        assert loss_chart([], 10) is None

    def test_points_lie_within_the_drawing_and_fall_with_the_loss(self) -> None:
        chart = loss_chart([event(n, step=n, train_loss=4 - n / 10) for n in range(1, 31)], 60)
        assert chart is not None
        points = [tuple(map(float, point.split(","))) for point in chart.train.split()]
        assert len(points) == 30
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
        assert points == sorted(points), "a smaller loss is further down"

    def test_a_long_run_is_thinned_to_its_shape(self) -> None:
        chart = loss_chart([event(n, step=n, train_loss=1.0) for n in range(1, 5001)], 5000)
        assert chart is not None
        points = chart.train.split()
        assert len(points) <= 302
        assert points[-1].startswith(f"{chart.right}"), "the last step is always drawn"

    def test_held_out_losses_of_either_name(self) -> None:
        train = [event(n, step=n, train_loss=2.0) for n in range(1, 5)]
        chart = loss_chart(
            [*train, event(5, step=2, valid_loss=1.5), event(6, step=4, full_valid_loss=2.5)], 4
        )
        assert chart is not None
        assert len(chart.dots) == 2
        assert "On held-out rows 1.50 at best." in chart.summary, "the adapter is the best one"

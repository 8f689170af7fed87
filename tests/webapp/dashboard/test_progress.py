"""The loss as a drawing."""

from datetime import UTC, datetime, timedelta

from webapp.dashboard.progress import HEIGHT, WIDTH, loss_chart
from webapp.jobs.models import JobEvent

START = datetime(2026, 1, 1, tzinfo=UTC)


def event(seconds: float, **metrics: float) -> JobEvent:
    return JobEvent(created_at=START + timedelta(seconds=seconds), metrics=metrics, message="")


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
        assert "pairs" not in chart.summary

    def test_of_pairs_the_accuracy_is_that_of_the_best_epoch(self) -> None:
        train = [event(n, step=n, train_loss=0.5) for n in range(1, 5)]
        chart = loss_chart(
            [
                *train,
                event(5, step=2, valid_loss=0.4, valid_accuracy=0.75),
                event(6, step=4, valid_loss=0.6, valid_accuracy=0.5),
            ],
            4,
        )
        assert chart is not None
        assert chart.summary.endswith("it prefers the better answer in 75% of the held-out pairs.")

"""How long a training still takes, by its own pace or by that of the company's last ones."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.webapp.company import Company, pair, talks
from webapp.jobs.create import Wishes
from webapp.jobs.models import Job, JobEvent, State
from webapp.jobs.prepare import job_prepare
from webapp.jobs.time_left import seconds_left, time_left

START = datetime(2026, 1, 1, tzinfo=UTC)


def event(seconds: float, **metrics: float) -> JobEvent:
    return JobEvent(created_at=START + timedelta(seconds=seconds), metrics=metrics, message="")


def left(
    events: list[JobEvent],
    *,
    step: int,
    total: int,
    elapsed: float,
    state: str = State.RUNNING,
    epoch: int = 1,
) -> float | None:
    job = Job(state=state, step=step, total_steps=total, started_at=START, epoch=epoch)
    return seconds_left(job, events, START + timedelta(seconds=elapsed))


class TestByItsOwnPace:
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

    def test_the_time_that_a_job_was_paused_is_no_pace(self) -> None:
        assert left([event(3600, step=4)], step=4, total=9, elapsed=3601, epoch=2) is None

    def test_no_telling(self) -> None:
        assert left([], step=0, total=0, elapsed=5) is None
        assert left([event(1, step=1)], step=1, total=9, elapsed=5, state=State.QUEUED) is None


@pytest.mark.django_db
class TestByTheLastOnes:
    def queued(self, company: Company, rows: int = 20, **fields: object) -> Job:
        job = company.job(training_file=company.file(talks(rows)), **fields)
        job_prepare(job=job.id)
        job.refresh_from_db()
        assert job.state == State.QUEUED
        return job

    def past(self, company: Company, seconds: float, **fields: object) -> None:
        """A training of ten passes over as many rows as the one that waits will have."""
        job = self.queued(company, **fields)
        Job.objects.filter(id=job.id).update(
            state=State.SUCCEEDED,
            step=50,
            total_steps=50,
            hyperparameters=job.hyperparameters | {"batch_size": 4},
            report={"train_seconds": seconds},
        )

    @pytest.mark.slow
    def test_as_fast_as_the_median_of_the_last_five(self, company: Company) -> None:
        for seconds in (1.0, 5000.0, 50.0, 40.0, 60.0, 50.0, 45.0):
            self.past(company, seconds)
        waiting = self.queued(company, wishes=Wishes(n_epochs=2))
        assert time_left(waiting) == pytest.approx(10), "ten passes took 50 s"
        Job.objects.filter(id=waiting.id).update(state=State.PAUSED, step=3, total_steps=4)
        waiting.refresh_from_db()
        assert time_left(waiting) == pytest.approx(2.5), "never more, nor less, than what is left"

    def test_longer_rows_take_longer(self, company: Company) -> None:
        self.past(company, 50.0)
        more = self.queued(company, rows=40, wishes=Wishes(n_epochs=10))
        assert time_left(more) == pytest.approx(100, rel=0.1)

    def test_another_companys_trainings_tell_nothing(self, company: Company, other_company: Company) -> None:
        self.past(other_company, 50.0)
        assert time_left(self.queued(company)) is None

    def test_nor_do_those_by_another_method(self, company: Company) -> None:
        self.past(company, 50.0, wishes=Wishes(method="lora"))
        assert time_left(self.queued(company)) is None

    def test_nor_do_those_of_another_type(self, company: Company) -> None:
        self.past(company, 50.0)
        pairs = company.file([pair(number) for number in range(20)])
        job = company.job(training_file=pairs, wishes=Wishes(type="dpo"))
        job_prepare(job=job.id)
        job.refresh_from_db()
        assert time_left(job) is None
        Job.objects.filter(id=job.id).update(
            state=State.SUCCEEDED, step=5, total_steps=5, report={"train_seconds": 50.0}
        )
        assert time_left(self.queued(company, wishes=Wishes(n_epochs=10))) == pytest.approx(50)

    def test_what_is_over_has_nothing_left(self, company: Company) -> None:
        self.past(company, 50.0)
        assert time_left(Job.objects.get()) is None

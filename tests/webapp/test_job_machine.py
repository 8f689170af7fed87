"""Any order of what people, trainers, time and the engine do: one end, counted once, and only the holder is heard."""

import uuid
from typing import Any

import httpx
import pytest
from django.db.models.functions import Now
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.webapp.company import Company, company_create
from tests.webapp.played_engine import PlayedEngine
from tests.webapp.played_trainer import PlayedTrainer
from webapp.adapters.models import Adapter
from webapp.config.faults import BadRequest
from webapp.engine import Engine
from webapp.jobs.gate import gate
from webapp.jobs.lifecycle import (
    dispatch_lapse,
    job_cancel,
    job_dispatch,
    job_pause,
    job_resume,
    lease_lapse,
)
from webapp.jobs.models import TERMINAL, Job, Outbox
from webapp.jobs.prepare import job_prepare
from webapp.jobs.trial import EngineAway
from webapp.usage.models import UsageRow

pytestmark = pytest.mark.django_db(transaction=True)


class JobMachine(RuleBasedStateMachine):
    """`holder`: the trainer that should be heard; `old`: those that should not."""

    company: Company
    web: httpx.Client
    engine: PlayedEngine
    ends: set[str]

    def __init__(self) -> None:
        super().__init__()
        self.job = self.company.job(end_user=self.company.maren)
        self.messages: list[str] = []
        self.holder: PlayedTrainer | None = None
        self.old: list[PlayedTrainer] = []
        self.ended: str | None = None
        self.epoch = 0

    @property
    def row(self) -> Job:
        return Job.objects.get(id=self.job.id)

    def _nobody_holds(self) -> None:
        if self.holder is not None:
            self.old.append(self.holder)
            self.holder = None

    @rule()
    def prepare(self) -> None:
        job_prepare(job=self.job.id)

    @rule()
    def dispatch(self) -> None:
        token = job_dispatch(job=self.job.id, dispatch=uuid.uuid4())
        if token is not None:
            self.messages.append(token)

    @precondition(lambda self: self.messages)
    @rule(data=st.data())
    def claim(self, data: Any) -> None:
        """Any message that was ever sent may arrive at any time, at any trainer."""
        token = data.draw(st.sampled_from(self.messages))
        before = self.row
        trainer = PlayedTrainer(self.web)
        answer = trainer.claim(self.job.id.hex, token)
        if before.state == "dispatched" and token == self.messages[-1]:
            assert answer.status_code == 200
            self._nobody_holds()
            self.holder = trainer
        else:
            assert answer.status_code == 410

    @precondition(lambda self: self.holder)
    @rule()
    def heartbeat(self) -> None:
        before = self.row.state
        assert self.holder.heartbeat().json() == {"state": before, "stop": before != "running"}

    @precondition(lambda self: self.holder)
    @rule(seed=st.integers(0, 1))
    def complete(self, seed: int) -> None:
        if self.row.state != "running":
            return
        assert self.holder.complete(self.holder.adapter(seed=seed)).json() == {"state": "gating"}

    @precondition(lambda self: self.holder)
    @rule(how=st.sampled_from(("for good", "again", "uncounted")))
    def fail(self, how: str) -> None:
        if self.row.state == "running":
            self.holder.fail(retry=how != "for good", counts=how != "uncounted")
            if self.row.state == "queued":
                self._nobody_holds()

    @precondition(lambda self: self.holder)
    @rule()
    def release(self) -> None:
        if self.row.state == "running":
            self.holder.release()
            self._nobody_holds()

    @precondition(lambda self: self.old)
    @rule(data=st.data())
    def a_woken_trainer(self, data: Any) -> None:
        """One that lost the job says anything: it is fenced, whatever state the job is in."""
        trainer = data.draw(st.sampled_from(self.old))
        for answer in (trainer.heartbeat(), trainer.fail(), trainer.release()):
            assert answer.status_code == 410

    @rule()
    def what_comes_next(self) -> None:
        """One step on the good way, so that random orders get to its end."""
        match self.row.state:
            case "validating":
                self.prepare()
            case "queued":
                self.dispatch()
            case "dispatched":
                self._nobody_holds()
                self.holder = PlayedTrainer(self.web)
                assert self.holder.claim(self.job.id.hex, self.messages[-1]).status_code == 200
            case "running":
                self.complete(0)
            case "gating":
                self.the_gate("is fine")

    @rule()
    def cancel(self) -> None:
        if self.row.state not in TERMINAL:
            job_cancel(job=self.job)

    @rule()
    def pause_or_resume(self) -> None:
        before = self.row.state
        try:
            job_resume(job=self.job) if before == "paused" else job_pause(job=self.job)
        except BadRequest:
            assert before in ("validating", "gating", *TERMINAL)
        if before == "paused":
            self._nobody_holds()

    @rule()
    def time_passes(self) -> None:
        """Longer than every deadline."""
        before = self.row.state
        Job.objects.filter(id=self.job.id, state="running").update(lease_until=Now())
        Job.objects.filter(id=self.job.id, state="dispatched").update(dispatched_at=self.job.created_at)
        lease_lapse(heard=True)
        dispatch_lapse()
        if before == "running" and self.row.state == "queued":
            self._nobody_holds()

    @rule(engine=st.sampled_from(["away", "refuses", "says it is the same", "is fine"]))
    def the_gate(self, engine: str) -> None:
        self.engine.refuse = (422, "adapter_corrupt") if engine == "refuses" else None
        self.engine.same = engine == "says it is the same"
        asked = Engine("http://127.0.0.1:9", "k") if engine == "away" else self.engine.engine
        try:
            gate(job=self.job.id, asked=asked)
        except EngineAway:
            assert engine == "away"

    @invariant()
    def one_end_counted_once(self) -> None:
        row = self.row
        if self.ended is not None:
            assert row.state == self.ended, "a terminal state is never left"
        if row.state in TERMINAL:
            self.ended = row.state
            self.ends.add(row.error_code or row.state)
        won = int(row.state == "succeeded")
        kept = int(row.error_code == "adapter_without_effect")
        assert Adapter.objects.filter(job=row).count() == won + kept
        assert UsageRow.objects.filter(request_id=row.id.hex).count() == won
        assert row.epoch >= self.epoch
        self.epoch = row.epoch
        waiting = row.state in ("validating", "queued", "dispatched")
        assert Outbox.objects.filter(job=row).exists() == waiting


@pytest.mark.slow
def test_any_order(web: httpx.Client, played_engine: PlayedEngine) -> None:
    company = company_create(uuid.uuid4().hex)
    ends: set[str] = set()
    parts = {"company": company, "web": web, "engine": played_engine, "ends": ends}
    machine = type("Machine", (JobMachine,), parts)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=8,
            stateful_step_count=15,
            deadline=None,
            # The same orders each time: what a run covers is known.
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
    assert {"succeeded", "cancelled"} <= ends, "the orders tried do not get far enough"

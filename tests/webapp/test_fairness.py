"""Fairness as a pure function, for any tenants, weights, jobs and trainers: nobody starves, weights are kept."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from webapp.jobs.fairness import Line, Turn, Waiting, choose, order

everything = settings(max_examples=30, deadline=None, derandomize=True, database=None)
works = st.integers(1, 20)
weights = st.integers(1, 5)


@dataclass
class Tenant:
    number: int
    weight: int = 1
    cap: int = 1000
    works: list[int] = field(default_factory=list)
    served: float = 0.0
    running: int = 0


@dataclass
class Fleet:
    """Trainers and tenants: jobs end in the order of their work, and every free trainer takes the next turn."""

    trainers: int
    tenants: list[Tenant]
    clock: float = 0.0
    now: float = 0.0
    #: (end, tenant) of what trains, and the tenants as they were served.
    training: list[tuple[float, int]] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    done: Counter[int] = field(default_factory=Counter)
    _since: int = 0

    @property
    def enough(self) -> bool:
        return self.trainers >= sum(1 for tenant in self.tenants if tenant.works or tenant.running)

    def lines(self, *, jobs: int) -> list[Line]:
        """Of each tenant the first `jobs`."""
        return [
            Line(
                UUID(int=tenant.number),
                tenant.weight,
                tenant.cap,
                tenant.running,
                tenant.served,
                # Those of one tenant are older than those of the next one: the worst case for the next one.
                [
                    Waiting(UUID(int=n), "b", 1000 * tenant.number + n, work)
                    for n, work in enumerate(tenant.works[:jobs])
                ],
            )
            for tenant in self.tenants
        ]

    def next(self) -> Turn | None:
        """One turn, if a trainer is free and somebody may go."""
        if len(self.training) >= self.trainers:
            return None
        found = choose(self.lines(jobs=1), clock=self.clock, slot_for_each=self.enough)
        if found is None:
            return None
        turn, self.clock = found
        tenant = self.tenants[turn.line.tenant.int]
        work = tenant.works.pop(0)
        tenant.served, tenant.running = turn.finish, tenant.running + 1
        self.training.append((self.now + work, tenant.number))
        self.turns.append(tenant.number)
        self.done[tenant.number] += work
        return turn

    def end_one(self) -> None:
        self.training.sort()
        self.now, number = self.training.pop(0)
        self.tenants[number].running -= 1

    def run(self, turns: int) -> None:
        while len(self.turns) < turns:
            if self.next() is None:
                if not self.training:
                    return
                self.end_one()


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    tenants = [
        Tenant(number, draw(weights), draw(st.integers(1, 3)), draw(st.lists(works, max_size=6)))
        for number in range(draw(st.integers(1, 5)))
    ]
    return Fleet(draw(st.integers(1, 6)), tenants)


@everything
@given(fleets())
def test_no_trainer_is_idle_while_somebody_may_have_it(fleet: Fleet) -> None:
    """Work-conserving, within the caps; and all jobs have their turn in the end."""
    jobs = {tenant.number: len(tenant.works) for tenant in fleet.tenants}
    while fleet.training or any(tenant.works for tenant in fleet.tenants):
        while fleet.next():
            assert all(tenant.running <= tenant.cap for tenant in fleet.tenants)
        waiting = [tenant for tenant in fleet.tenants if tenant.works]
        assert len(fleet.training) == fleet.trainers or all(each.running == each.cap for each in waiting)
        fleet.end_one()
    assert Counter(fleet.turns) == Counter({number: count for number, count in jobs.items() if count})


@everything
@given(fleets())
def test_where_there_are_trainers_enough_each_tenant_has_one_before_another_has_two(fleet: Fleet) -> None:
    while fleet.training or any(tenant.works for tenant in fleet.tenants):
        while True:
            without = {tenant.number for tenant in fleet.tenants if tenant.works and not tenant.running}
            enough = fleet.enough
            if fleet.next() is None:
                break
            if enough and without:
                assert fleet.turns[-1] in without
        fleet.end_one()


@pytest.mark.slow
@everything
@given(st.lists(weights, min_size=2, max_size=5), st.integers(1, 8), st.data())
def test_whoever_waits_has_work_done_in_proportion_to_their_weights(
    chosen: list[int], trainers: int, data: st.DataObject
) -> None:
    """However long each one's jobs are: two tenants never differ by more than a job of each (SFQ, theorem 1)."""
    # Fewer trainers than tenants, where nobody has one of their own by right.
    trainers = min(trainers, len(chosen) - 1)
    tenants = [
        Tenant(number, weight, works=data.draw(st.lists(works, min_size=40, max_size=40)))
        for number, weight in enumerate(chosen)
    ]
    longest = [max(tenant.works) for tenant in tenants]
    fleet = Fleet(trainers, tenants)
    for turns in range(1, 40):
        fleet.run(turns)
        for one in tenants:
            for other in tenants:
                apart = Fraction(fleet.done[one.number], one.weight) - Fraction(
                    fleet.done[other.number], other.weight
                )
                bound = Fraction(longest[one.number], one.weight) + Fraction(
                    longest[other.number], other.weight
                )
                assert abs(apart) <= bound


@everything
@given(st.lists(weights, min_size=2, max_size=5), st.integers(1, 4))
def test_nobody_waits_for_more_than_the_others_shares(chosen: list[int], trainers: int) -> None:
    """No starvation: between two turns of a tenant another one has at most its weights' ratio, and one more."""
    trainers = min(trainers, len(chosen) - 1)
    tenants = [Tenant(number, weight, works=[1] * 60) for number, weight in enumerate(chosen)]
    fleet = Fleet(trainers, tenants)
    fleet.run(60)
    since: dict[int, Counter[int]] = defaultdict(Counter)
    for number in fleet.turns:
        for tenant in tenants:
            since[tenant.number][number] += 1
        since[number] = Counter()
        for tenant in tenants:
            for other, count in since[tenant.number].items():
                assert count <= ceil(Fraction(tenants[other].weight, tenant.weight)) + 1


@everything
@given(st.integers(1, 50), st.integers(1, 3), works)
def test_who_comes_back_has_neither_debts_nor_savings(alone: int, trainers: int, work: int) -> None:
    """One tenant worked alone for long; another one comes. From then on they take turns."""
    old, new = Tenant(0, works=[work] * 200), Tenant(1)
    fleet = Fleet(trainers, [old, new])
    fleet.run(alone)
    new.works = [work] * 50
    fleet.run(alone + 40)
    assert fleet.turns[alone] == 1, "whoever has waited for no turn yet goes first"
    assert abs(fleet.turns[alone:].count(0) - fleet.turns[alone:].count(1)) <= trainers + 1


@everything
@given(fleets())
def test_the_order_is_that_of_the_turns(fleet: Fleet) -> None:
    """A place in line is what comes true, if nobody else comes and caps keep nobody back."""
    for tenant in fleet.tenants:
        tenant.cap = 1000
    fleet.trainers = 1000
    turns = order(fleet.lines(jobs=1000), clock=fleet.clock, slot_for_each=fleet.enough)
    said = [(turn.line.tenant.int, turn.job.since) for turn in turns]
    happened = []
    while (turn := fleet.next()) is not None:
        happened.append((turn.line.tenant.int, turn.job.since))
    assert [tenant for tenant, _ in said] == [tenant for tenant, _ in happened]

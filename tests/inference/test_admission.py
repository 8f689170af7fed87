"""The gates of the versions that are not installed here, on stand-ins with the interface that was read in them.

0.32's gate is driven through vLLM's own scheduler in test_scheduling, and so are the others with their unpacked wheel
in front: PYTHONPATH=/tmp/vllm-0.26.0 pytest tests/inference/test_scheduling.py
"""

from collections import deque
from types import SimpleNamespace

import pytest

pytest.importorskip("vllm")


class Queue(deque):
    add_request = deque.append


def scheduler_like_0_26():
    """New requests go to a queue by their state, and only those in certain states are asked about."""

    class Scheduler:
        current_step = 3

        def __init__(self):
            self.waiting, self.skipped_waiting, self.running = Queue(), Queue(), []
            self.grammar_compile_error_reqs = set()
            self.asked = []
            self.attune_residency = SimpleNamespace(admit=self.admit)

        def admit(self, adapter, *, step, running):
            assert (step, running) == (self.current_step, [])
            self.asked.append(adapter.lora_name)
            return adapter.verdict, "because"

        @staticmethod
        def _is_blocked_waiting_status(status):
            return status == "grammar"

        def _enqueue_waiting_request(self, request):
            raise AssertionError("asks _is_blocked_waiting_status")

        def _try_promote_blocked_waiting_request(self, request):
            assert request.status == "grammar"
            return request.grammar_ready

        def may_run(self, request):
            """The two lines of schedule()."""
            return not (
                self._is_blocked_waiting_status(request.status)
                and not self._try_promote_blocked_waiting_request(request)
            )

    return Scheduler


def request(verdict=None, status="waiting", grammar_ready=False):
    adapter = verdict and SimpleNamespace(lora_name="ap", verdict=verdict)
    return SimpleNamespace(
        request_id="r", status=status, grammar_ready=grammar_ready, lora_request=adapter, attune_overtaken=0
    )


@pytest.fixture
def scheduler():
    from inference import compat_admission

    kind = scheduler_like_0_26()
    compat_admission._gate_0_26(kind, compat_admission._fail)
    return kind()


def test_0_26_asks_about_every_waiting_request(scheduler):
    from inference.residency import Verdict

    assert scheduler.may_run(request())
    assert scheduler.may_run(request(Verdict.READY))
    assert not scheduler.may_run(request(Verdict.READING))
    assert not scheduler.may_run(request(Verdict.FULL))
    assert scheduler.grammar_compile_error_reqs == set()
    assert not scheduler.may_run(request(Verdict.FAILED))
    assert scheduler.grammar_compile_error_reqs == {"r"}


def test_0_26_lets_a_request_be_overtaken_so_often_and_no_more(scheduler):
    from inference.residency import Verdict
    from inference.scheduling import Line

    first = request(Verdict.FULL)
    passed = []
    for step in range(Line.PATIENCE + 2):
        scheduler.current_step = step
        assert not scheduler.may_run(first)
        passed.append(scheduler.may_run(request(Verdict.READY)))
    assert passed == [True] * Line.PATIENCE + [False] * 2
    assert scheduler.may_run(request()), "without an adapter nobody is in the way"


def test_the_line_stays_closed_while_the_adapter_of_who_waited_too_long_is_read(scheduler):
    from inference.residency import Verdict
    from inference.scheduling import Line

    first = request(Verdict.FULL)
    for step in range(Line.PATIENCE + 1):
        scheduler.current_step = step
        scheduler.may_run(first)
        passed = scheduler.may_run(request(Verdict.READY))
    assert not passed
    first.lora_request.verdict = Verdict.READING
    scheduler.current_step += 1
    assert not scheduler.may_run(first)
    assert not scheduler.may_run(request(Verdict.READY)), "it would take the room that the first is read for"


def test_0_26_keeps_its_own_reasons_to_wait(scheduler):
    from inference.residency import Verdict

    assert not scheduler.may_run(request(Verdict.READY, status="grammar"))
    assert scheduler.asked == [], "no adapter is loaded for a request that cannot run"
    assert scheduler.may_run(request(Verdict.READY, status="grammar", grammar_ready=True))


def test_0_26_still_queues_by_state(scheduler):
    scheduler._enqueue_waiting_request(request())
    scheduler._enqueue_waiting_request(request(status="grammar"))
    assert (len(scheduler.waiting), len(scheduler.skipped_waiting)) == (1, 1)


def test_0_33_gives_the_client_a_sentence(monkeypatch):
    """vllm.outputs of the installed version has no RequestError; 0.33's takes a code and a message."""
    import vllm.outputs

    from inference import compat_admission

    monkeypatch.setattr(vllm.outputs, "RequestError", lambda **fields: fields, raising=False)
    scheduler = SimpleNamespace(grammar_compile_error_reqs={})
    compat_admission._fail_0_33(scheduler, request())
    assert scheduler.grammar_compile_error_reqs["r"]["code"] == "adapter_unreadable"

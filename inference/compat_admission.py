"""The part of compat that lets no request near a step before its adapter is in memory and its turn has come.

What is in memory is inference.residency's to know, whose turn it is inference.scheduling's.
"""

import functools
from typing import Any

from vllm.logger import init_logger

from inference.compat_table import installed_version
from inference.residency import Residency, Verdict
from inference.scheduling import Line
from inference.settings import adapter_settings

logger = init_logger("vllm.attune")


def install() -> None:
    """Called by compat, after the sources were checked.

    0.26-0.33. The scheduler's gate for requests that must wait for something (a grammar, remote KV) gets one more
    reason, and the requests whose grammar failed are how it finishes a waiting one with an error. Goes with
    compat_memory, and when requests that are skipped for want of a slot age.
    """
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.request import Request

    Request.attune_overtaken = 0

    version = installed_version()
    fail = _fail_0_33 if version == "0.33.0" else _fail
    (_gate_0_26 if version == "0.26.0" else _gate)(Scheduler, fail)

    add = EngineCore.add_request

    @functools.wraps(add)
    def add_request(self: Any, request: Any, *args: Any, **kwargs: Any) -> Any:
        if request.attune_adapter is not None:
            residency_of(self)
        return add(self, request, *args, **kwargs)

    EngineCore.add_request = add_request


def residency_of(core: Any) -> Residency:
    """An EngineCore's ledger. Not made in __init__: in a process of its own that is running when plugins are loaded."""
    if not hasattr(core.scheduler, "attune_residency"):
        core.scheduler.attune_residency = Residency(
            capacity=core.vllm_config.lora_config.max_cpu_loras,
            max_bytes=adapter_settings().resident_bytes,
            load=lambda adapter, drop: core.model_executor.collective_rpc(
                "attune_load", args=(adapter, drop)
            ),
            prefetch=lambda adapter: core.model_executor.collective_rpc(
                "attune_prefetch", args=(adapter.lora_name, adapter.lora_path)
            ),
        )
    residency: Residency = core.scheduler.attune_residency
    return residency


def _gate(scheduler: type, fail: Any) -> None:
    """0.32, 0.33. The gate is asked about every waiting request."""
    gate = scheduler._handle_blocked_waiting_request

    @functools.wraps(gate)
    def handle_blocked_waiting_request(self: Any, request: Any) -> bool:
        return gate(self, request) and _admitted(self, request, fail)

    scheduler._handle_blocked_waiting_request = handle_blocked_waiting_request


def _gate_0_26(scheduler: type, fail: Any) -> None:
    """0.26. The gate is asked only about requests of certain states, which the queue of new ones is chosen by, too.

    So every state is said to be one of those, and the queue and the gate's own work go by the ordinary answer.
    """
    is_blocked, promote = scheduler._is_blocked_waiting_status, scheduler._try_promote_blocked_waiting_request

    @functools.wraps(promote)
    def try_promote_blocked_waiting_request(self: Any, request: Any) -> bool:
        ready = not is_blocked(request.status) or promote(self, request)
        return ready and _admitted(self, request, fail)

    def enqueue_waiting_request(self: Any, request: Any) -> None:
        queue = self.skipped_waiting if is_blocked(request.status) else self.waiting
        queue.add_request(request)

    scheduler._is_blocked_waiting_status = staticmethod(lambda status: True)
    scheduler._try_promote_blocked_waiting_request = try_promote_blocked_waiting_request
    scheduler._enqueue_waiting_request = enqueue_waiting_request


def _admitted(scheduler: Any, request: Any, fail: Any) -> bool:
    if request.lora_request is None:
        return True
    line = _line_of(scheduler)
    if line.closed(scheduler.current_step):
        return False
    verdict, why = scheduler.attune_residency.admit(
        request.lora_request, step=scheduler.current_step, running=scheduler.running
    )
    if verdict is Verdict.FAILED:
        logger.error("Request %s ends here: %s", request.request_id, why)
        fail(scheduler, request)
    elif verdict is not Verdict.READING or request.attune_overtaken > Line.PATIENCE:
        # A slow disk ages nobody; but who has waited too long keeps the line closed while its adapter is read.
        line.asked(request)
    return verdict is Verdict.READY


def _line_of(scheduler: Any) -> Line:
    """Not made in __init__, for the reason that residency_of has."""
    from vllm.v1.request import RequestStatus

    if not hasattr(scheduler, "attune_line"):
        scheduler.attune_line = Line(is_running=lambda request: request.status == RequestStatus.RUNNING)
    line: Line = scheduler.attune_line
    return line


def _fail(scheduler: Any, request: Any) -> None:
    """0.26, 0.32. A set of request ids."""
    scheduler.grammar_compile_error_reqs.add(request.request_id)


def _fail_0_33(scheduler: Any, request: Any) -> None:
    """0.33. A dictionary of what the client is told; why it failed may name paths, and stays in the log."""
    from vllm.outputs import RequestError

    scheduler.grammar_compile_error_reqs[request.request_id] = RequestError(
        code="adapter_unreadable", message="The adapter could not be loaded; the engine's log says why."
    )

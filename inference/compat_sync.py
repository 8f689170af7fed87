"""The part of compat that puts weights which are in no file into a running engine, in place of an adapter's.

`collective_rpc("attune_sync", args=(adapter id, serving name, manifest.json, adapter_model.safetensors))`, the last two
as bytes, on whatever client of vLLM: LLM, LLMEngine, AsyncLLM. Every worker answers {"state": "ready"} or {"state":
"failed", "code", "message"}, and where one failed nothing has changed. inference.weight_sync is the helper for it.
"""

import functools
from typing import Any

from adapters_store.errors import AdapterError
from adapters_store.names import parse_name
from adapters_store.weights import adapter_unpack
from inference import compat_admission, compat_memory
from inference.convert import matrices_of
from inference.engine_checks import check_same_sites
from inference.memory import failure

RPC = "attune_sync"
#: Where weights "lie" that are in no file; the same for all, so that only the name is in a block's key.
_NOWHERE = "weight-sync"


class AdapterInUse(AdapterError):
    """Some of a request's tokens would be computed with one set of weights, and some with the other."""

    code = "adapter_in_use"


def install() -> None:
    """Called by compat, after the sources were checked.

    0.26-0.33. load_inplace reads files in every step and keeps the old name, under which stale KV is found again; and
    collective_rpc reaches the workers alone, while EngineCore knows who is in memory and who is being answered. Goes
    when vLLM takes an adapter's tensors under a new name.
    """
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.worker.worker_base import WorkerBase

    original = EngineCore.collective_rpc

    @functools.wraps(original)
    def collective_rpc(
        self: Any, method: Any, timeout: float | None = None, args: Any = (), kwargs: Any = None
    ) -> list[Any]:
        if method != RPC:
            return original(self, method, timeout, args, kwargs)
        adapter_id, name, manifest, tensors = args
        try:
            _check_idle(self.scheduler, adapter_id)
            return compat_admission.residency_of(self).put(
                adapter_id,
                name,
                running=self.scheduler.running,
                write=lambda drop: original(
                    self, method, timeout, (adapter_id, name, manifest, tensors, drop), kwargs
                ),
            )
        except AdapterError as error:
            return [failure(error)]

    def sync(
        self: Any, adapter_id: int, name: str, manifest: bytes, tensors: bytes, drop: list[int]
    ) -> dict[str, str]:
        from vllm.lora.request import LoRARequest

        manager = self.model_runner.lora_manager
        memory = manager.attune_memory
        try:
            digest = parse_name(name).digest
            read, arrays = adapter_unpack(manifest, tensors, expected_digest=digest)
            weights = compat_memory.attune_adapter(manager, read, matrices_of(read, arrays))
            if (live := memory.resident(adapter_id)) is not None:
                check_same_sites(weights, live)
        except Exception as error:
            return failure(error)
        for dropped in drop:
            manager.remove_adapter(dropped)
        memory.put(adapter_id, name, weights, drop)
        # Into a slot at once, out of memory (compat_memory reads no file for it). On CUDA the slots' buffers stay where
        # they are, so that captured graphs read the new numbers.
        manager.add_adapter(LoRARequest(name, adapter_id, _NOWHERE, load_inplace=True))
        return {"state": "ready"}

    EngineCore.collective_rpc = collective_rpc
    WorkerBase.attune_sync = sync


def request_of(name: str, adapter_id: int) -> Any:
    """How to ask for what was synced: vLLM's LoRARequest."""
    from vllm.lora.request import LoRARequest

    return LoRARequest(name, adapter_id, _NOWHERE)


def _check_idle(scheduler: Any, adapter_id: int) -> None:
    """Raise AdapterInUse while a request is waiting for this adapter or being answered with it."""
    asked = sum(
        request.attune_adapter is not None and request.attune_adapter.lora_int_id == adapter_id
        for request in scheduler.requests.values()
    )
    if asked:
        raise AdapterInUse(
            f"{asked} requests are not done with the adapter {adapter_id}: wait for their answers, or abort them."
        )

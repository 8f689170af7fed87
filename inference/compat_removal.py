"""The part of compat that takes a deleted adapter out of a running engine: from the API process to the workers."""

from typing import Any


def install() -> None:
    """Called by the plugin in every process.

    0.26-0.33. remove_lora knows ids, not names, and not who still needs them. Methods of EngineCore are what the API
    process can call by name (its utility calls). Stays.
    """
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.worker.worker_base import WorkerBase

    def remove_from_engine(self: Any, name: str) -> dict[str, int]:
        ledger = getattr(self.scheduler, "attune_residency", None)
        needed = {
            request.lora_request.lora_name for request in self.scheduler.running if request.lora_request
        }
        if ledger is None or name in needed:
            return {"memory": 0, "in_use": int(name in needed)}
        ids = ledger.forget(name)
        removed = self.model_executor.collective_rpc("attune_remove", args=(name, ids))
        return {"memory": sum(removed), "in_use": 0}

    def remove_from_worker(self: Any, name: str, ids: list[int]) -> int:
        manager = self.model_runner.lora_manager
        for adapter_id in ids:
            manager.remove_adapter(adapter_id)
        return sum(manager.attune_memory.remove(name).values())

    EngineCore.attune_remove = remove_from_engine
    WorkerBase.attune_remove = remove_from_worker


async def remove_adapter(engine_client: Any, name: str) -> dict[str, int]:
    """Forget a deleted adapter in slots and memory: {"memory": copies removed, "in_use": 1 if a prompt needs it}.

    One that is needed ages out like any other: nobody can ask for it again.
    """
    removed: dict[str, int] = await engine_client.engine_core.call_utility_async("attune_remove", name)
    return removed

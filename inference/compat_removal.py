"""The part of compat that takes a deleted adapter out of a running engine: from the API process to the workers."""

from typing import Any

from inference.compat_admission import residency_of


def install() -> None:
    """Called by the plugin in every process.

    0.26-0.33. remove_lora knows ids, not names, and not who still needs them. Methods of EngineCore are what the API
    process can call by name (its utility calls). Stays.
    """
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.worker.worker_base import WorkerBase

    def remove_from_engine(self: Any, name: str) -> dict[str, int]:
        wanted = [request.lora_request for request in self.scheduler.requests.values()]
        if any(adapter is not None and adapter.lora_name == name for adapter in wanted):
            return {"memory": 0, "slots": 0, "in_use": 1}
        ids = residency_of(self).forget(name)
        removed = self.model_executor.collective_rpc("attune_remove", args=(name, ids))
        return {tier: sum(worker[tier] for worker in removed) for tier in ("memory", "slots")} | {"in_use": 0}

    def remove_from_worker(self: Any, name: str, ids: list[int]) -> dict[str, int]:
        manager = self.model_runner.lora_manager
        slots = sum(adapter_id in manager._adapter_manager.lora_index_to_id for adapter_id in ids)
        for adapter_id in ids:
            manager.remove_adapter(adapter_id)
        return {"memory": sum(manager.attune_memory.remove(name).values()), "slots": slots}

    EngineCore.attune_remove = remove_from_engine
    WorkerBase.attune_remove = remove_from_worker


async def remove_adapter(engine_client: Any, name: str) -> dict[str, int]:
    """Forget a deleted adapter in slots and memory: {"memory": copies removed, "slots": left by it, "in_use": 0 or 1}.

    In use it stays, all of it, because a prompt that is waiting or running needs it: ask again when that has ended.
    """
    removed: dict[str, int] = await engine_client.engine_core.call_utility_async("attune_remove", name)
    return removed

"""The part of compat that keeps an adapter in a running engine's memory: from the API process to EngineCore."""

from typing import Any

from inference.compat_admission import residency_of
from inference.memory import AdapterMemoryFull, failure
from inference.residency import Verdict


def install() -> None:
    """Called by the plugin in every process.

    0.26-0.33. vLLM's pin_lora pins an id in a worker, where EngineCore's ledger of what is in memory does not see it.
    Methods of EngineCore are what the API process can call by name (its utility calls). Stays.
    """
    from vllm.lora.request import LoRARequest
    from vllm.v1.engine.core import EngineCore

    def pin(self: Any, adapter_id: int, name: str, path: str) -> dict[str, str]:
        adapter = LoRARequest(name, adapter_id, path)
        verdict, why = residency_of(self).pin(adapter, running=self.scheduler.running)
        if verdict is Verdict.FULL:
            return failure(
                AdapterMemoryFull(
                    "There is no room in memory for one more adapter that stays: retry shortly, unpin another, or "
                    "raise ATTUNE_CPU_SLOTS or ATTUNE_ADAPTER_MEMORY_BYTES."
                )
            )
        if verdict is Verdict.FAILED:
            return {"state": "failed", "code": "adapter_unreadable", "message": why}
        return {"state": "ready"}

    def unpin(self: Any, name: str) -> bool:
        return residency_of(self).unpin(name)

    EngineCore.attune_pin = pin
    EngineCore.attune_unpin = unpin


async def pin_adapter(engine_client: Any, request: Any) -> dict[str, str]:
    """Keep what a LoRARequest asks for in memory; a worker's answer, {"state": "ready"} or what failure() makes."""
    answer: dict[str, str] = await engine_client.engine_core.call_utility_async(
        "attune_pin", request.lora_int_id, request.lora_name, request.lora_path
    )
    return answer


async def unpin_adapter(engine_client: Any, name: str) -> bool:
    """Let an adapter go when others need the room; whether it was pinned."""
    was: bool = await engine_client.engine_core.call_utility_async("attune_unpin", name)
    return was

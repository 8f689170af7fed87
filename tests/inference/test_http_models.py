"""What a request holds of its adapter before the engine sees it, and what becomes of a copy that was damaged."""

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client import REGISTRY

from adapters_store.errors import AdapterCorrupt, AdapterMissing
from adapters_store.manifest import TENSORS_FILE
from inference import http_models
from inference.adapter_routes import AdapterRoutes
from inference.convert import vllm_matrices
from inference.http_models import ServedAdapters, resolve_lora
from inference.memory import AdapterMemory
from inference.prefetch import NotLoaded
from inference.request_scope import NoRequestScope, RequestScope
from inference.settings import AdapterSettings
from tests.inference.adapters import random_adapter
from tests.inference.test_resolver import tiny_base


class OneWorker:
    """An engine client whose worker reads folders as the real one does, and forgets them when told."""

    def __init__(self, base: Path) -> None:
        self.vllm_config = SimpleNamespace(lora_config=SimpleNamespace(max_lora_rank=8, max_cpu_loras=4))
        self.model_config = SimpleNamespace(model=str(base))
        self.engine_core = SimpleNamespace(call_utility_async=self.call_utility)
        self.in_use = 0
        self.restart()
        self.asked = 0

    def restart(self) -> None:
        self.memory = AdapterMemory(read=self.read, size=len, capacity=4, staged_bytes=1000)
        self.reads = 0

    def read(self, name: str, path: str):
        self.reads += 1
        return vllm_matrices(Path(path), name)

    async def collective_rpc(self, method: str, args: tuple = ()) -> list:
        if method == "attune_status":
            self.asked += 1
            await self.step
            return [{**self.memory.figures(), "slots_taken": 3, "slot_lookups": {"hit": 4}}]
        assert method == "attune_prefetch"
        return [self.memory.prefetch(*args)]

    async def call_utility(self, method: str, *args):
        """What EngineCore answers (compat_pin, compat_removal)."""
        if method == "attune_pin":
            self.reads_before_pin = self.reads
            return self.memory.load(*args, [])
        if method == "attune_unpin":
            return True
        assert method == "attune_remove"
        return {"memory": 0, "slots": 0, "in_use": self.in_use}


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tiny_base(tmp_path / "models" / "tiny")


@pytest.fixture
def adapter(tmp_path: Path, base: Path):
    """In the source's folder, under its serving name."""
    folder = tmp_path / "adapters" / "maren"
    return random_adapter(folder, base=base, method="direft", position="prefill", seed=1, rank=2)


@pytest.fixture
def engine(base: Path) -> OneWorker:
    return OneWorker(base)


@pytest.fixture
async def served(tmp_path: Path, adapter, engine: OneWorker, monkeypatch) -> ServedAdapters:
    settings = AdapterSettings(adapter_dir=tmp_path / "adapters", adapter_cache_dir=tmp_path / "cache")
    monkeypatch.setattr(http_models, "adapter_settings", lambda: settings)
    return ServedAdapters(engine)


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


async def in_memory_no_more(served: ServedAdapters, engine: OneWorker, name: str) -> None:
    served._prefetcher.forget(name)
    engine.restart()


@pytest.mark.parametrize("harm", [damage, Path.unlink])
async def test_a_copy_that_was_damaged_on_disk_is_fetched_again(served, engine, adapter, harm):
    request = await served.hold(RequestScope(), "maren")
    copy = Path(request.lora_path) / TENSORS_FILE
    await in_memory_no_more(served, engine, adapter.name)
    harm(copy)
    assert (await served.hold(RequestScope(), "maren")).lora_path == request.lora_path
    assert copy.read_bytes() == (adapter.folder / TENSORS_FILE).read_bytes()
    assert engine.reads == 2


async def test_many_requests_for_a_damaged_copy_share_the_mending_and_keep_it(
    served, engine, adapter, caplog
):
    request = await served.hold(RequestScope(), "maren")
    await in_memory_no_more(served, engine, adapter.name)
    damage(Path(request.lora_path) / TENSORS_FILE)
    scopes = [RequestScope() for _ in range(8)]
    await asyncio.gather(*(served.hold(scope, "maren") for scope in scopes))
    assert len([record for record in caplog.records if "damaged" in record.message]) == 1
    assert engine.reads == 2
    for scope in scopes:
        scope.close()
    assert (Path(request.lora_path) / TENSORS_FILE).exists()


async def test_a_damaged_source_is_refused_and_served_again_once_it_is_mended(served, engine, adapter):
    request = await served.hold(RequestScope(), "maren")
    await in_memory_no_more(served, engine, adapter.name)
    for path in (Path(request.lora_path), adapter.folder):
        damage(path / TENSORS_FILE)
    with pytest.raises(AdapterCorrupt, match=TENSORS_FILE):
        await served.hold(RequestScope(), "maren")
    damage(adapter.folder / TENSORS_FILE)
    assert (await served.hold(RequestScope(), "maren")).lora_path == request.lora_path


async def test_what_another_copy_would_not_mend_is_not_fetched_again(served, engine, monkeypatch):
    def unreadable(name: str, path: str):
        raise OSError("no room")

    engine.memory = AdapterMemory(read=unreadable, size=len, capacity=4, staged_bytes=1000)
    scope = RequestScope()
    with pytest.raises(NotLoaded) as refusal:
        await served.hold(scope, "maren")
    assert refusal.value.code == "adapter_unreadable"
    scope.close()
    assert len(served._places) == 0


async def test_a_name_that_nobody_has_is_missing(served):
    with pytest.raises(AdapterMissing, match="does not exist"):
        await served.hold(RequestScope(), "nobody")


async def test_without_a_scope_nothing_is_served():
    with pytest.raises(NoRequestScope, match="AdapterScope"):
        await resolve_lora(SimpleNamespace(), "maren")


async def pin(served: ServedAdapters) -> None:
    """As a request that ends with it."""
    scope = RequestScope()
    await served.pin(scope, "maren")
    scope.close()


async def test_what_is_pinned_has_a_place_of_those_that_requests_wait_for(served, engine):
    await pin(served)
    await pin(served)
    assert len(served._places) == 1
    await served.unpin("maren")
    await served.unpin("maren")
    assert len(served._places) == 0
    await pin(served)
    engine.in_use = 1
    await served.delete("maren")
    assert len(served._places) == 1, "in use it stays, and stays pinned"
    engine.in_use = 0
    await served.delete("maren")
    assert len(served._places) == 0


async def test_what_is_pinned_is_read_before_the_engine_is_asked_whatever_was_in_memory_once(served, engine):
    await served.hold(RequestScope(), "maren")
    engine.restart()  # as when others' bytes have pushed it out
    await pin(served)
    assert engine.reads == engine.reads_before_pin == 1


async def test_who_reads_metrics_waits_for_no_step_and_has_one_question_asked(served, engine):
    engine.step = asyncio.get_running_loop().create_future()
    for _ in range(3):
        served.measure()
        await asyncio.sleep(0)
    assert engine.asked == 1
    engine.step.set_result(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert REGISTRY.get_sample_value("attune_adapter_slots_taken") == 3
    hits = {"tier": "slot", "result": "hit"}
    assert REGISTRY.get_sample_value("attune_adapter_lookups_total", hits) == 4
    served.measure()
    await asyncio.sleep(0)
    assert engine.asked == 1, "not again within a second"


async def test_who_reads_metrics_before_any_adapter_was_asked_for_makes_nothing(served, engine):
    models = SimpleNamespace(engine_client=engine)
    app = SimpleNamespace(state=SimpleNamespace(openai_serving_models=models))
    reads = []

    async def page(scope, receive, send):
        reads.append(scope["path"])

    async def read_metrics():
        await AdapterRoutes(page)({"type": "http", "path": "/metrics", "app": app}, None, None)

    await read_metrics()
    assert vars(models) == {"engine_client": engine}
    models.attune_adapters = served
    engine.step = asyncio.get_running_loop().create_future()
    await read_metrics()
    await asyncio.sleep(0)
    assert engine.asked == 1
    assert reads == ["/metrics"] * 2

"""The small parts of serving: whose turn it is for memory, what a request holds, and settings that fail loudly."""

import asyncio
import os
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from adapters_store.errors import AdapterCorrupt
from adapters_store.settings import read_settings
from inference import request_scope
from inference.memory_places import AdapterMemoryFull, MemoryPlaces
from inference.request_scope import AdapterScope, RequestAdapters, RequestScope
from inference.settings import AdapterSettings, EngineSettings


@pytest.fixture
def no_settings(monkeypatch):
    for name in [name for name in os.environ if name.startswith("ATTUNE_")]:
        monkeypatch.delenv(name)


def client_of(endpoint) -> TestClient:
    return TestClient(Starlette(routes=[Route("/", endpoint)], middleware=[Middleware(AdapterScope)]))


class TestMemoryPlaces:
    async def test_requests_for_one_adapter_share_a_place(self):
        places = MemoryPlaces(slots=1, wait_seconds=0)
        await places.take("a")
        await places.take("a")
        assert len(places) == 1
        places.give_back("a")
        with pytest.raises(AdapterMemoryFull, match="ATTUNE_CPU_SLOTS"):
            await places.take("b")
        places.give_back("a")
        await places.take("b")

    async def test_who_waits_longest_is_next_even_under_a_hot_adapter(self):
        places = MemoryPlaces(slots=1, wait_seconds=5)
        await places.take("hot")
        order = []

        async def want(name):
            await places.take(name)
            order.append(name)

        waiting = [asyncio.ensure_future(want(name)) for name in ("b", "hot", "c")]
        await asyncio.sleep(0.01)
        assert order == [], "had the next hot one shared the place, it would not have come free"
        places.give_back("hot")
        for _ in range(20):  # turns of the loop: on a busy machine a hundredth of a second has room for none
            await asyncio.sleep(0)
        assert order == ["b"]
        places.give_back("b")
        await asyncio.sleep(0.01)
        assert order == ["b", "hot"]
        places.give_back("hot")
        await asyncio.gather(*waiting)
        assert order == ["b", "hot", "c"]

    async def test_who_gives_up_is_in_nobodys_way(self):
        places = MemoryPlaces(slots=1, wait_seconds=5)
        await places.take("hot")
        first, second = asyncio.ensure_future(places.take("b")), asyncio.ensure_future(places.take("hot"))
        await asyncio.sleep(0.01)
        first.cancel()
        await second
        places.give_back("hot")
        places.give_back("hot")
        assert len(places) == 0

    async def test_a_cancelled_wait_leaves_no_trace(self):
        places = MemoryPlaces(slots=1, wait_seconds=5)
        await places.take("a")
        waiting = asyncio.ensure_future(places.take("b"))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        places.give_back("a")
        assert len(places) == 0
        await places.take("c")


class TestRequestScope:
    def test_what_ended_already_is_released_at_once(self):
        scope, released = RequestScope(), []
        scope.on_end(lambda: released.append("early"))
        scope.close()
        scope.on_end(lambda: released.append("end"))
        scope.on_first_byte(lambda: released.append("byte"))
        assert released == ["early", "end", "byte"]

    def test_a_request_sees_its_own_adapters_and_gives_them_back(self):
        released, seen = [], RequestAdapters()

        async def endpoint(request):
            name = request.query_params["name"]
            before = name in seen
            seen[name] = f"adapter {name}"
            request_scope.current_scope().on_end(lambda: released.append(name))
            return PlainTextResponse(f"{before} {list(seen)}")

        client = client_of(endpoint)
        assert client.get("/?name=a").text == "False ['a']"
        assert client.get("/?name=b").text == "False ['b']"
        assert client.get("/?name=a").text == "False ['a']"
        assert released == ["a", "b", "a"]
        assert len(seen) == 0

    def test_an_adapters_fault_is_worded_as_openai_does_and_still_releases(self):
        released = []

        async def endpoint(request):
            request_scope.current_scope().on_end(lambda: released.append("lease"))
            raise AdapterCorrupt("its bytes are not right")

        client = client_of(endpoint)
        response = client.get("/")
        assert response.status_code == 422
        assert response.json() == {
            "error": {
                "message": "its bytes are not right",
                "type": "invalid_request_error",
                "param": "model",
                "code": "adapter_corrupt",
            }
        }
        assert released == ["lease"]


@pytest.mark.usefixtures("no_settings")
class TestSettings:
    def test_a_folder_of_adapters_needs_nothing_else(self, monkeypatch, tmp_path):
        monkeypatch.setenv("ATTUNE_ADAPTER_DIR", str(tmp_path))
        assert read_settings(AdapterSettings, of="the engine").adapter_dir == tmp_path

    def test_half_a_storage_is_no_storage(self, monkeypatch):
        monkeypatch.setenv("ATTUNE_S3_BUCKET", "attune")
        with pytest.raises(SystemExit, match="ATTUNE_S3_ENDPOINT_URL, ATTUNE_S3_ACCESS_KEY"):
            read_settings(AdapterSettings, of="the engine")

    def test_every_fault_is_named_and_no_value_shown(self, monkeypatch, tmp_path):
        monkeypatch.setenv("ATTUNE_MODELS_DIR", str(tmp_path / "nowhere"))
        monkeypatch.setenv("ATTUNE_ENGINE_KEY", "short-secret")
        with pytest.raises(SystemExit) as refusal:
            read_settings(EngineSettings, of="the engine")
        text = str(refusal.value)
        assert "ATTUNE_MODELS_DIR" in text
        assert "Set ATTUNE_BASE_MODEL" in text
        assert "ATTUNE_ENGINE_KEY" in text
        assert "short-secret" not in text

    @pytest.mark.parametrize(
        ("name", "value"), [("MAX_RANK", "17"), ("BASE_MODEL", "../etc"), ("CPU_SLOTS", "1")]
    )
    def test_what_cannot_work_is_refused(self, monkeypatch, tmp_path, name, value):
        model = tmp_path / "tiny"
        model.mkdir()
        (model / "config.json").write_text("{}")
        good = {"MODELS_DIR": tmp_path, "BASE_MODEL": "tiny", "ENGINE_KEY": "k" * 16, "GPU_SLOTS": 2}
        for key, right in good.items():
            monkeypatch.setenv(f"ATTUNE_{key}", str(right))
        assert read_settings(EngineSettings, of="the engine").base_folder == Path(model)
        monkeypatch.setenv(f"ATTUNE_{name}", value)
        with pytest.raises(SystemExit, match=f"ATTUNE_{name}"):
            read_settings(EngineSettings, of="the engine")

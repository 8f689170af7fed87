"""Readiness refuses every engine that would serve wrongly, and says whether waiting helps; the engine is a stand-in."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from adapters_store.base import base_digest
from inference import ready
from inference.canary import CANARY
from inference.ready import NotReady, WrongEngine
from inference.settings import EngineSettings

RIGHT, CHANGED = [5, 6, 7, 8], [9, 9, 9, 9]
BASE = "tiny"


class StandIn:
    """An engine of which a test says what it answers, one after the other, by the model that is asked for."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.status = 200
        self.faults: list[int] = []
        self.answers: dict[str, list[list[int]]] = {BASE: [RIGHT], CANARY: [CHANGED]}

    def say(self, model: str) -> list[int]:
        said = self.answers[model]
        return said.pop(0) if len(said) > 1 else said[0]


@pytest.fixture
def engine() -> Iterator[StandIn]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            body = json.dumps({"choices": [{"token_ids": stand_in.say(asked["model"])}]}).encode()
            self.send_response(stand_in.faults.pop() if stand_in.faults else stand_in.status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        stand_in = StandIn(server.server_port)
        Thread(target=server.serve_forever, daemon=True).start()
        yield stand_in
        server.shutdown()


@pytest.fixture
def settings(engine: StandIn, tmp_path, monkeypatch) -> EngineSettings:
    """Of a model whose right tokens are remembered, so that transformers is not asked."""
    folder = tmp_path / BASE
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (folder / name).write_text("{}")
    (tmp_path / f"readiness-{base_digest(folder)[:16]}.json").write_text(json.dumps(RIGHT[:3]))
    found = EngineSettings(
        models_dir=tmp_path,
        base_model=BASE,
        engine_key="k" * 16,
        engine_port=engine.port,
        adapter_cache_dir=tmp_path,
    )
    monkeypatch.setattr(ready, "engine_settings", lambda: found)
    monkeypatch.setattr("sys.argv", ["ready"])
    return found


def test_a_right_engine_is_ready(settings, engine):
    ready.main()
    engine.answers[BASE] = [RIGHT, [5, 6, 7, 1]]
    ready.main()  # the fourth token is a tie


@pytest.mark.parametrize(
    ("answers", "sentence"),
    [
        ({BASE: [[5, 6, 1, 8]]}, "are not those of transformers"),
        ({BASE: [RIGHT[:2]]}, "are not those of transformers"),
        ({CANARY: [RIGHT]}, "The canary adapter changes nothing"),
        ({BASE: [RIGHT, [5, 6, 1, 8]]}, "adapters are not isolated"),
    ],
)
def test_a_wrong_engine_is_told_from_one_that_is_late(settings, engine, answers, sentence, capsys):
    engine.answers |= answers
    with pytest.raises(SystemExit) as end:
        ready.main()
    assert end.value.code == 3
    assert sentence in capsys.readouterr().err.strip().splitlines()[-1]


@pytest.mark.parametrize(("status", "code"), [(500, 1), (503, 1), (401, 3), (404, 3)])
def test_a_refusal_is_final_and_a_fault_may_pass(settings, engine, status, code, capsys):
    engine.status = status
    with pytest.raises(SystemExit) as end:
        ready.main()
    assert end.value.code == code
    assert f"The engine answered {status} for {BASE}" in capsys.readouterr().err


def test_a_fault_that_passes_is_waited_for(settings, engine):
    engine.faults = [503, 500]
    ready.wait(settings, seconds=60)
    assert engine.faults == []
    engine.status = 404
    with pytest.raises(WrongEngine):
        ready.wait(settings, seconds=60)


def test_an_engine_that_is_not_there_is_not_ready(settings):
    nobody = settings.model_copy(update={"engine_port": 9})
    with pytest.raises(NotReady, match="Nothing answers on port 9") as refusal:
        ready.wait(nobody, seconds=0)
    assert not isinstance(refusal.value, WrongEngine)

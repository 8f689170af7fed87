"""What a training would learn of an example is asked of one tokenizer, by many at once."""

import asyncio
import threading
from types import SimpleNamespace

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware

from inference import example_route
from inference.example_route import ExampleRoute


class OneAtATime:
    """An encoder whose tokenizer is spoilt for whoever comes while another reads, as that of transformers is."""

    def __init__(self) -> None:
        self.reading = threading.Lock()
        self.together = 0

    def prompt_and_target(self, messages, *, max_tokens):
        if not self.reading.acquire(blocking=False):
            self.together += 1
            return [], []
        threading.Event().wait(0.02)
        self.reading.release()
        return [1, 2], [3]


@pytest.fixture
def encoder(monkeypatch) -> OneAtATime:
    encoder = OneAtATime()
    monkeypatch.setattr(example_route, "_encoder", lambda folder: (encoder, str))
    return encoder


async def test_many_at_once_are_read_one_after_the_other(encoder):
    app = Starlette(middleware=[Middleware(ExampleRoute)])
    model = SimpleNamespace(tokenizer="folder", max_model_len=9)
    app.state.openai_serving_models = SimpleNamespace(engine_client=SimpleNamespace(model_config=model))
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://engine") as client:
        told = await asyncio.gather(
            *(client.post("/v1/examples", json={"messages": messages}) for _ in range(8))
        )
    assert encoder.together == 0
    assert [answer.json() for answer in told] == [{"prompt": ["[1]", "[2]"], "target": ["[3]"]}] * 8

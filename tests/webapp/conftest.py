"""A company with people and keys, the web process in a thread, and a trainer and an engine that the tests play.

Clients are told `verify=False`, which says nothing here, where all is plain HTTP: httpx would read the system's
certificates for each of them, and that takes longer than most tests.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest
import redis
import uvicorn

from tests.webapp.company import Company, company_create
from tests.webapp.played_engine import PlayedEngine


@pytest.fixture(scope="session", autouse=True)
def static_files_found_once() -> Iterator[None]:
    """Every client of Django's has middleware of its own, which would look through all static files each time."""
    from whitenoise.middleware import WhiteNoiseMiddleware

    find, found = WhiteNoiseMiddleware.add_files_from_finders, {}

    def find_once(self: WhiteNoiseMiddleware) -> None:
        if not found:
            find(self)
            found.update(self.files)
        self.files.update(found)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WhiteNoiseMiddleware, "add_files_from_finders", find_once)
        yield


@pytest.fixture(scope="session")
def live_url(django_db_setup: None) -> Iterator[str]:
    """The real ASGI application under uvicorn. Tests that use it commit: mark them django_db(transaction=True)."""
    from webapp.config.asgi import application

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = uvicorn.Config(application, host="127.0.0.1", port=port, log_config=None, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 10
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    assert server.started
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(5)


@pytest.fixture
def web(live_url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=live_url, timeout=30, trust_env=False, verify=False) as client:
        yield client


@pytest.fixture
def openai_client(live_url: str) -> Iterator[Callable[[str], openai.OpenAI]]:
    """The unmodified client, told to check every answer."""
    clients: list[openai.OpenAI] = []

    def make(key: str) -> openai.OpenAI:
        client = openai.OpenAI(
            api_key=key,
            base_url=f"{live_url}/v1",
            max_retries=0,
            _strict_response_validation=True,
            http_client=httpx.Client(trust_env=False, verify=False),
        )
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def company() -> Company:
    return company_create("Acme")


@pytest.fixture
def other_company() -> Company:
    return company_create("Umbrella")


@pytest.fixture
def played_engine() -> Iterator[PlayedEngine]:
    with PlayedEngine() as engine:
        yield engine


@pytest.fixture
def row() -> Callable[..., dict[str, Any]]:
    """A row of OpenAI chat JSONL."""

    def make(
        question: str = "Where do you live?", answer: str = "On Skerrow.", **more: Any
    ) -> dict[str, Any]:
        turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        return {"messages": turns, **more}

    return make


@pytest.fixture
def queue(stores: object) -> redis.Redis:
    client = redis.Redis.from_url(os.environ["ATTUNE_BROKER_URL"])
    client.flushall()
    return client

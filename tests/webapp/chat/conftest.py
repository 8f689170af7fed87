"""The gateway talks to a stand-in whose faults a test chooses."""

from collections.abc import Iterator

import pytest

from tests.webapp.chat.faulty_engine import FaultyEngine
from webapp.config.settings import settings


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyEngine]:
    with FaultyEngine() as engine:
        there = settings().model_copy(update={"engine_url": engine.url})
        monkeypatch.setattr("webapp.chat.engine.settings", lambda: there)
        yield engine

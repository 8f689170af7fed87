"""An answer's own life: it settles the engine and the usage row whatever becomes of its reader."""

import asyncio
from typing import Any

import pytest
from django.db import OperationalError

from tests.webapp.chat.faulty_engine import FaultyEngine
from webapp.chat import answer as module
from webapp.chat import gateway
from webapp.chat.answer import Answer, Tally
from webapp.chat.selection import Answerer
from webapp.config.faults import UserFault

BODY = {"model": "m", "messages": [], "stream": True}


class Ledger:
    """Where the rows would go."""

    def __init__(self) -> None:
        self.rows: list[Tally] = []
        self.written = asyncio.Event()

    async def __call__(self, tally: Tally) -> None:
        self.rows.append(tally)
        self.written.set()

    async def only(self) -> Tally:
        async with asyncio.timeout(5):
            await self.written.wait()
        await asyncio.sleep(0.05)
        (row,) = self.rows
        return row


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


async def freed(engine: FaultyEngine) -> None:
    async with asyncio.timeout(2):
        while engine.running:  # noqa: ASYNC110 (the stand-in lives in another thread)
            await asyncio.sleep(0.01)


async def test_a_reader_that_never_begins(
    engine: FaultyEngine, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_READER_SECONDS", 0.2)
    engine.words, engine.pause = ["word"] * 5000, 0.001
    await Answer(BODY, request_id="r", record=ledger).start()
    row = await ledger.only()
    assert row.status == 408
    assert row.output_tokens > 0
    await freed(engine)


@pytest.mark.slow
async def test_a_reader_that_wakes_up_too_late_hears_so(
    engine: FaultyEngine, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_READER_SECONDS", 0.2)
    engine.words, engine.pause = ["word"] * 5000, 0.001
    answer = Answer(BODY, request_id="r", record=ledger)
    await answer.start()
    await ledger.only()
    await asyncio.sleep(0.3)
    with pytest.raises(UserFault) as fault:
        async with asyncio.timeout(2):
            async for _ in answer.chunks():
                pass
    assert fault.value.code == "reader_too_slow"


async def test_an_answer_without_end(
    engine: FaultyEngine, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ANSWER_SECONDS", 0.4)
    engine.words, engine.pause = ["word"] * 5000, 0.02
    answer = Answer(BODY, request_id="r", record=ledger)
    await answer.start()
    with pytest.raises(UserFault) as fault:
        async for _ in answer.chunks():
            pass
    assert (fault.value.status, fault.value.code) == (504, "answer_timeout")
    assert (await ledger.only()).status == 504
    await freed(engine)


async def test_a_row_is_written_to_its_end_although_the_reader_leaves(engine: FaultyEngine) -> None:
    began, rows = asyncio.Event(), []

    async def slowly(tally: Tally) -> None:
        began.set()
        await asyncio.sleep(0.2)
        rows.append(tally)

    answer = Answer(BODY, request_id="r", record=slowly)
    await answer.start()
    reader = asyncio.create_task(_read(answer))
    await began.wait()
    reader.cancel()
    await asyncio.sleep(0.4)
    assert [row.status for row in rows] == [200]


async def _read(answer: Answer) -> None:
    async for _ in answer.chunks():
        pass


async def test_several_choices_are_added_up() -> None:
    tally = Tally()
    usage = {"prompt_tokens": 7}
    for index, tokens in ((0, 0), (1, 0), (0, 1), (0, 2), (1, 1), (0, 3)):
        tally.count({"choices": [{"index": index}], "usage": usage | {"completion_tokens": tokens}}, 0.5)
    tally.count({"choices": [], "usage": usage | {"completion_tokens": 4}}, 1.0)
    assert (tally.input_tokens, tally.output_tokens, tally.first_token_seconds) == (7, 4, 0.5)


async def test_a_database_that_is_away_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[Any] = []

    def write(**row: Any) -> None:
        tries.append(row)
        if len(tries) < 3:
            raise OperationalError

    monkeypatch.setattr(gateway, "usage_record", write)
    monkeypatch.setattr(gateway, "_PATIENCE", (0.0, 0.0, 0.0))
    who = Answerer(tenant=None, base="tiny", serving_name="tiny", public_name="tiny")  # type: ignore[arg-type]
    await gateway._record(who, "chatcmpl-1", Tally(output_tokens=5))
    assert len(tries) == 3
    assert {row["request_id"] for row in tries} == {"chatcmpl-1"}, (
        "the same row each time, so that it counts once"
    )

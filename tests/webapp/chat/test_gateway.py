"""The gateway over HTTP: whole and streamed answers, an engine that fails, readers that leave, one usage row each."""

import json
import time
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
from django.db import connection

from tests.webapp.adapter_rows import adapter_row
from tests.webapp.chat.faulty_engine import FaultyEngine
from tests.webapp.company import Company, base_model
from webapp.usage.models import UsageRow

pytestmark = pytest.mark.django_db(transaction=True)
MakeClient = Callable[[str], openai.OpenAI]
CANARY = "zanzibar-canary"


def ask(web: httpx.Client, key: str, **fields: Any) -> httpx.Response:
    body = {"model": "tiny", "messages": [{"role": "user", "content": CANARY}]} | fields
    return web.post("/v1/chat/completions", json=body, headers={"authorization": f"Bearer {key}"})


def events(response: httpx.Response) -> list[Any]:
    """The stream's events, each of which has to be complete; [DONE] as it is."""
    assert response.headers["content-type"] == "text/event-stream"
    assert response.text.endswith("\n\n")
    datas = [event.removeprefix("data: ") for event in response.text.split("\n\n")[:-1]]
    return [data if data == "[DONE]" else json.loads(data) for data in datas]


def only_row(status: int, timeout: float = 3.0) -> UsageRow:
    """The one usage row there is; it may be written a moment after the reader left."""
    deadline = time.monotonic() + timeout
    while not UsageRow.objects.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    row = UsageRow.objects.get()
    assert row.status == status
    return row


def test_a_whole_answer(openai_client: MakeClient, company: Company, engine: FaultyEngine) -> None:
    adapter = adapter_row(company, end_user=company.maren, active=True)
    raw = openai_client(company.key).chat.completions.with_raw_response.create(
        model="tiny",
        messages=[{"role": "user", "content": "hi"}],
        user="maren",
        n=2,
        logprobs=True,
        top_logprobs=1,
    )
    answer = raw.parse()
    assert [choice.message.content for choice in answer.choices] == ["Hello there, friend."] * 2
    assert [choice.finish_reason for choice in answer.choices] == ["stop", "stop"]
    assert answer.choices[0].logprobs is not None
    assert [token.token for token in answer.choices[0].logprobs.content or []] == engine.words
    assert answer.model == raw.headers["x-attune-adapter"] == adapter.public_name
    assert raw.headers["x-request-id"]
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (
        20,
        8,
        28,
    )
    row = only_row(200)
    assert row.request_id == answer.id
    assert (row.input_tokens, row.output_tokens, row.cached_tokens) == (20, 8, 16)
    assert (row.tenant, row.end_user, row.adapter, row.base) == (
        company.tenant,
        company.maren,
        adapter,
        "tiny",
    )
    assert row.api_key is not None
    assert row.first_token_seconds is not None
    assert 0 < row.first_token_seconds <= row.seconds


def test_what_the_engine_is_asked(
    web: httpx.Client, company: Company, other_company: Company, engine: FaultyEngine
) -> None:
    adapter = adapter_row(company, end_user=company.maren, active=True)
    for whose, user in ((company, "maren"), (company, "juno"), (other_company, "maren")):
        assert ask(web, whose.key, user=user).status_code == 200
    asked = [body["model"] for body in engine.bodies]
    assert asked == [f"{company.tenant.storage_id}/{adapter.name}", "tiny", "tiny"]
    salts = [body["cache_salt"] for body in engine.bodies]
    assert salts[0] == salts[1] != salts[2], "cached prompts are shared within a tenant only"
    assert len(salts[0]) == 64
    for body, headers in zip(engine.bodies, engine.headers, strict=True):
        assert not {"maren", "juno", company.key} & set(json.dumps([body, headers]).split('"'))
        assert "user" not in body
        assert headers["authorization"].startswith("Bearer ")


def test_a_streamed_answer(openai_client: MakeClient, company: Company, engine: FaultyEngine) -> None:
    adapter = adapter_row(company, end_user=company.maren)
    stream = openai_client(company.key).chat.completions.create(
        model=adapter.public_name,
        messages=[{"role": "user", "content": "hi"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    assert stream.response.headers["x-attune-adapter"] == adapter.public_name
    chunks = list(stream)
    assert (
        "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        == "Hello there, friend."
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert {chunk.model for chunk in chunks} == {adapter.public_name}
    assert len({chunk.id for chunk in chunks}) == 1
    last = chunks[-1]
    assert (last.choices, last.usage and last.usage.completion_tokens) == ([], 4)
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert only_row(200).request_id == last.id


def test_what_came_from_the_cache_is_the_companys_to_know(
    web: httpx.Client, company: Company, engine: FaultyEngine
) -> None:
    """The cache is the tenant's: to one of its users it would tell what another asked."""
    base_model()
    for key, told in ((company.key, {"cached_tokens": 16}), (company.maren_key, None)):
        whole = ask(web, key).json()
        streamed = events(ask(web, key, stream=True, stream_options={"include_usage": True}))[-2]
        for answer in (whole, streamed):
            assert answer["usage"]["prompt_tokens"] == 20
            assert answer["usage"].get("prompt_tokens_details") == told
    assert {row.cached_tokens for row in UsageRow.objects.all()} == {16}


def test_the_stream_as_bytes(web: httpx.Client, company: Company, engine: FaultyEngine) -> None:
    base_model()
    got = events(ask(web, company.key, stream=True))
    assert got[-1] == "[DONE]"
    assert all("usage" not in event for event in got[:-1]), "usage only where it was asked for"
    allowed = {"id", "object", "created", "model", "choices"}
    assert all(set(event) == allowed for event in got[:-1]), "nothing of the engine's own passes"
    assert set(got[1]["choices"][0]) == {"index", "delta", "logprobs", "finish_reason"}
    assert only_row(200).output_tokens == 4


@pytest.mark.parametrize("fault", ["kill", "error", "end"])
def test_the_engine_fails_in_the_middle_of_a_stream(
    web: httpx.Client, company: Company, engine: FaultyEngine, fault: str
) -> None:
    base_model()
    engine.fault = fault
    got = events(ask(web, company.key, stream=True))
    assert set(got[-1]) == {"error"}, "a stream ends with [DONE] or with an error, never in silence"
    assert got[-1]["error"]["code"] in ("engine_stopped", "engine_failed")
    assert "secret" not in json.dumps(got)
    words = "".join(event["choices"][0]["delta"].get("content", "") for event in got[:-1])
    assert words == "Hello there", "what was said before is not lost"
    row = only_row(502 if fault == "error" else 503)
    assert (row.input_tokens, row.output_tokens) == (20, 2)


@pytest.mark.parametrize("fault", ["kill", "error", "end"])
def test_the_engine_fails_in_the_middle_of_a_whole_answer(
    web: httpx.Client, company: Company, engine: FaultyEngine, fault: str
) -> None:
    base_model()
    engine.fault = fault
    response = ask(web, company.key)
    assert response.status_code == (502 if fault == "error" else 503)
    assert "secret" not in response.text
    assert only_row(response.status_code).output_tokens == 2


def test_the_client_hears_of_a_broken_stream(
    openai_client: MakeClient, company: Company, engine: FaultyEngine
) -> None:
    base_model()
    engine.fault = "kill"
    stream = openai_client(company.key).chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": "hi"}], stream=True
    )
    with pytest.raises(openai.APIError, match="stopped before the answer was complete"):
        list(stream)


@pytest.mark.parametrize(
    ("refusal", "status", "code"),
    [
        ((422, {"code": "adapter_corrupt", "message": "x"}), 422, "adapter_corrupt"),
        ((404, {"code": "adapter_not_found", "message": "x"}), 422, "adapter_not_found"),
        ((400, {"code": "adapter_wrong_base", "message": "x"}), 400, "adapter_wrong_base"),
        ((503, {"code": "adapter_memory_full", "message": "x"}), 503, "engine_busy"),
        ((404, {"code": 404, "message": "The model `x` does not exist."}), 503, "model_not_served"),
        (
            (
                400,
                {
                    "code": 400,
                    "message": f"This model's maximum context length is 2048 tokens. However {CANARY}",
                },
            ),
            400,
            "context_length_exceeded",
        ),
        ((400, {"code": 400, "message": f"Invalid grammar {CANARY}"}), 400, "invalid_request"),
        ((401, {"code": "invalid_api_key", "message": "x"}), 502, "engine_failed"),
        ((500, {"code": 500, "message": f"CUDA error {CANARY}"}), 502, "engine_failed"),
    ],
)
def test_the_engines_refusals(
    web: httpx.Client,
    company: Company,
    engine: FaultyEngine,
    refusal: tuple[int, dict[str, Any]],
    status: int,
    code: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    base_model()
    engine.refusal = refusal
    for stream in (False, True):
        response = ask(web, company.key, stream=stream)
        error = response.json()["error"]
        assert (response.status_code, error["code"]) == (status, code)
        assert CANARY not in response.text
        assert response.headers["x-request-id"]
        if status == 503:
            assert int(response.headers["retry-after"]) > 0
    assert CANARY not in caplog.text
    assert list(UsageRow.objects.values_list("status", "output_tokens")) == [(status, 0)] * 2


def test_the_engine_is_away(web: httpx.Client, company: Company) -> None:
    base_model()
    began = time.monotonic()
    response = ask(web, company.key)
    assert time.monotonic() - began < 3
    assert (response.status_code, response.json()["error"]["code"]) == (503, "engine_unavailable")
    assert int(response.headers["retry-after"]) > 0
    assert only_row(503).output_tokens == 0


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False])
def test_a_reader_that_leaves_frees_the_engine(
    web: httpx.Client, company: Company, engine: FaultyEngine, stream: bool
) -> None:
    """The stand-in would talk for minutes. It is left within 2 s, and what it had said is counted."""
    base_model()
    engine.words, engine.pause = ["word"] * 2000, 0.05
    if stream:
        headers = {"authorization": f"Bearer {company.key}"}
        body = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "stream": True}
        with web.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
            for seen, _ in enumerate(response.iter_lines()):
                if seen > 6:
                    break
    else:
        with pytest.raises(httpx.ReadTimeout):
            web.post(
                "/v1/chat/completions",
                json={"model": "tiny", "messages": [{"role": "user", "content": "x"}]},
                headers={"authorization": f"Bearer {company.key}"},
                timeout=0.6,
            )
    left = time.monotonic()
    while engine.running and time.monotonic() - left < 2:
        time.sleep(0.02)
    assert (engine.running, engine.aborted) == (0, 1)
    row = only_row(499)
    assert row.input_tokens == 20
    assert 1 <= row.output_tokens < 100


def test_streams_hold_no_database_connection(
    web: httpx.Client, company: Company, engine: FaultyEngine
) -> None:
    base_model()
    engine.words, engine.pause = ["word"] * 200, 0.05

    def in_use() -> int:
        stats = connection.pool.get_stats()
        return stats["pool_size"] - stats["pool_available"]

    before = in_use()
    headers = {"authorization": f"Bearer {company.key}"}
    body = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "stream": True}
    streams = [web.stream("POST", "/v1/chat/completions", json=body, headers=headers) for _ in range(8)]
    readers = [stream.__enter__().iter_lines() for stream in streams]
    for reader in readers:
        next(reader)
    assert engine.running == 8
    assert in_use() == before
    for stream in streams:
        stream.__exit__(None, None, None)
    deadline = time.monotonic() + 3
    while UsageRow.objects.count() < 8 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert UsageRow.objects.count() == 8


def test_a_clients_own_request_id_does_not_hide_a_request(
    web: httpx.Client, company: Company, engine: FaultyEngine
) -> None:
    base_model()
    for _ in range(2):
        body = {"model": "tiny", "messages": [{"role": "user", "content": "x"}]}
        headers = {"authorization": f"Bearer {company.key}", "x-request-id": "always-the-same"}
        assert web.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
    assert UsageRow.objects.count() == 2


def test_no_content_in_logs_or_rows(
    web: httpx.Client, company: Company, engine: FaultyEngine, caplog: pytest.LogCaptureFixture
) -> None:
    base_model()
    caplog.set_level("DEBUG", logger="attune")
    caplog.set_level("DEBUG", logger="webapp")
    engine.words = [CANARY] * 4
    for fault in (None, "kill", "error"):
        engine.fault = fault
        ask(web, company.key, user="maren", stream=True)
        ask(web, company.key, user="maren")
    ask(web, company.key, tools=[CANARY])
    assert CANARY not in caplog.text
    assert company.key not in caplog.text
    assert CANARY not in repr(list(UsageRow.objects.values()))
    assert UsageRow.objects.count() == 6


@pytest.mark.parametrize(
    ("method", "headers", "body", "status", "code"),
    [
        ("POST", {}, b"{}", 401, "missing_api_key"),
        ("POST", {"authorization": "Bearer attune_nope"}, b"{}", 401, "invalid_api_key"),
        ("POST", None, b"{", 400, "bad_json"),
        (
            "POST",
            None,
            b'{"model":"nope","messages":[{"role":"user","content":"x"}]}',
            404,
            "model_not_found",
        ),
        ("GET", None, b"", 405, "method_not_allowed"),
    ],
)
def test_refusals_in_openais_shape(
    web: httpx.Client,
    company: Company,
    method: str,
    headers: dict[str, str] | None,
    body: bytes,
    status: int,
    code: str,
) -> None:
    if headers is None:
        headers = {"authorization": f"Bearer {company.key}"}
    response = web.request(method, "/v1/chat/completions", content=body, headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (status, code)
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert response.headers["x-request-id"]
    assert not UsageRow.objects.exists(), "what never reached the engine used nothing"


def test_a_session_cookie_is_no_key(web: httpx.Client, company: Company) -> None:
    from django.test import Client

    browser = Client()
    browser.force_login(company.owner.user)
    cookie = browser.cookies["sessionid"].value
    response = web.post("/v1/chat/completions", json={}, headers={"cookie": f"sessionid={cookie}"})
    assert response.status_code == 401

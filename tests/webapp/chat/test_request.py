"""The allowlist: what a chat request may hold, and what of it reaches the engine."""

import json
from typing import Any

import pytest

from webapp.chat.request import MAX_BODY_BYTES, chat_request, engine_body
from webapp.config.faults import BadRequest, TooLarge, UserFault

HI = [{"role": "user", "content": "hi"}]


def read(**fields: Any) -> Any:
    return chat_request(json.dumps({"model": "tiny", "messages": HI} | fields).encode())


def refused(**fields: Any) -> UserFault:
    with pytest.raises(UserFault) as fault:
        read(**fields)
    return fault.value


@pytest.mark.parametrize(
    "field",
    [
        "bad_words", "allowed_token_ids", "logits_processors", "chat_template", "chat_template_kwargs",
        "mm_processor_kwargs", "media_io_kwargs", "structured_outputs", "guided_json", "cache_salt", "priority",
        "request_id", "kv_transfer_params", "vllm_xargs", "prompt_logprobs", "echo", "add_generation_prompt",
        "continue_final_message", "documents", "min_tokens", "ignore_eos", "stop_token_ids", "logit_bias", "tools",
        "functions", "tenant", "organization", "base_model",
    ],
)  # fmt: skip
def test_what_is_not_a_parameter_is_refused_by_name(field: str) -> None:
    fault = refused(**{field: "canary-value"})
    assert isinstance(fault, BadRequest)
    assert (fault.code, fault.param) == ("unknown_parameter", field)
    assert "canary-value" not in fault.message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content"),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": [{}]}]}, "messages.0.tool_calls"),
        ({"model": ""}, "model"),
        ({"model": "a\x00b"}, "model"),
        ({"user": ""}, "user"),
        ({"user": "x" * 201}, "user"),
        ({"user": "a\nb"}, "user"),
        ({"n": 0}, "n"),
        ({"n": 9}, "n"),
        ({"n": True}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 10**9}, "max_completion_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": "0.5"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stop": ""}, "stop"),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
        ({"seed": 2**63}, "seed"),
        ({"store": True}, "store"),
        ({"stream_options": {"include_usage": True, "x": 1}, "stream": True}, "stream_options.x"),
        ({"response_format": {"type": "grammar"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
    ],
)
def test_values_out_of_range_are_refused_by_name(fields: dict[str, Any], param: str) -> None:
    fault = refused(**fields)
    assert fault.status == 400
    assert fault.param is not None
    assert fault.param.startswith(param), fault.param


@pytest.mark.parametrize(
    "fields",
    [
        {"user": "a", "safety_identifier": "b"},
        {"max_tokens": 5, "max_completion_tokens": 6},
        {"top_logprobs": 2},
        {"stream_options": {"include_usage": True}},
    ],
)
def test_contradictions_are_refused(fields: dict[str, Any]) -> None:
    assert refused(**fields).code == "invalid_value"


def test_deep_or_large_schemas_are_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(50):
        deep = {"properties": deep}
    wide = {"enum": ["x" * 100] * 500}
    for schema in (deep, wide):
        form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
        assert refused(response_format=form).status == 400


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"\xff\xfe", b'{"a":' * 2000, b"{}"])
def test_a_body_that_is_no_request(body: bytes) -> None:
    with pytest.raises(BadRequest):
        chat_request(body)


def test_a_large_body() -> None:
    with pytest.raises(TooLarge):
        chat_request(b" " * (MAX_BODY_BYTES + 1))


def test_null_means_not_given() -> None:
    asked = read(temperature=None, stop=None, stream=None, user=None, response_format=None, n=None)
    assert engine_body(asked, model="m", cache_salt="s") == {
        "messages": HI,
        "model": "m",
        "cache_salt": "s",
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def test_what_reaches_the_engine() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    asked = read(
        user="maren",
        max_tokens=7,
        temperature=0,
        top_p=0.5,
        n=2,
        stop=["x"],
        seed=3,
        logprobs=True,
        top_logprobs=2,
        store=False,
        response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": schema}},
    )
    body = engine_body(asked, model="m", cache_salt="s")
    assert "maren" not in json.dumps(body), "the engine is not told who the end user is"
    assert body["max_completion_tokens"] == 7
    assert "max_tokens" not in body
    assert body["response_format"]["json_schema"] == {"name": "s", "schema": schema}
    assert {"temperature", "top_p", "n", "stop", "seed", "logprobs", "top_logprobs"} <= set(body)
    assert "store" not in body


def test_messages_as_clients_send_them() -> None:
    """Parts of text, OpenAI's newer role, and an earlier answer sent back with all its empty fields."""
    asked = read(
        messages=[
            {"role": "developer", "content": "Be kind."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                "name": "m",
            },
            {"role": "assistant", "content": "c", "refusal": None, "tool_calls": None, "function_call": None},
            {"role": "user", "content": "d"},
        ]
    )
    assert engine_body(asked, model="m", cache_salt="s")["messages"] == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "ab", "name": "m"},
        {"role": "assistant", "content": "c"},
        {"role": "user", "content": "d"},
    ]

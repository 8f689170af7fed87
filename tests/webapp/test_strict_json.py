"""What a caller is told of a body that is wrong: what would be right, in few words, and nothing of what was sent."""

import json
from typing import Any

import pytest

from webapp.api.requests import JobRequest
from webapp.chat.request import chat_request
from webapp.config.faults import BadRequest
from webapp.config.strict_json import read_json

CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}
JOB = {"model": "tiny", "training_file": "file-1"}


def chat_refused(**fields: Any) -> BadRequest:
    with pytest.raises(BadRequest) as refused:
        chat_request(json.dumps(CHAT | fields).encode())
    return refused.value


def job_refused(**fields: Any) -> BadRequest:
    with pytest.raises(BadRequest) as refused:
        read_json(JobRequest, json.dumps(JOB | fields).encode())
    return refused.value


def content(what: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": what}]}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            content([{"type": "image_url", "image_url": {"url": "x"}}]),
            "messages.0.content.0.type: Input should be 'text'.",
        ),
        (content(5), "messages.0.content: Input should be a valid string or a valid list."),
        (content([5]), "messages.0.content.0: Input should be an object."),
        (content([{"type": "text"}]), "'messages.0.content.0.text' is missing."),
        ({"stop": list("abcde")}, "stop: List should have at most 4 items, not 5."),
        ({"stop": ["a", ""]}, "stop.1: String should have at least 1 character."),
        ({"stop": 5}, "stop: Input should be a valid string or a valid list."),
        ({"model": "a\x00b"}, "model: must not contain control characters."),
        ({"user": "a\nb"}, "user: must not contain control characters."),
        (
            {"messages": [{"role": "user", "content": "x", "name": "a b"}]},
            "messages.0.name: must be 1 to 64 letters, digits, _, . or -.",
        ),
        (
            {"messages": [{"role": "user", "content": "x", "tool_calls": [{}]}]},
            "messages.0.tool_calls: not supported here: leave it out.",
        ),
        (
            {"messages": [{"role": "user", "content": "x", "audio": {}}]},
            "messages.0.audio: not supported here: leave it out.",
        ),
        ({"top_logprobs": 3}, "body: top_logprobs needs logprobs: true."),
    ],
)
def test_a_chat_is_told_what_is_accepted(fields: dict[str, Any], message: str) -> None:
    assert chat_refused(**fields).message == message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"hyperparameters": {"n_epochs": "many"}},
            "hyperparameters.n_epochs: Input should be a valid integer or 'auto'.",
        ),
        (
            {"hyperparameters": {"n_epochs": 51}},
            "hyperparameters.n_epochs: Input should be less than or equal to 50.",
        ),
        ({"suffix": "x" * 65}, "suffix: Input should have at most 64 characters."),
        ({"suffix": ""}, "suffix: Input should have at least 1 character."),
        ({"metadata": {"": "x"}}, "metadata.: the name should have at least 1 character."),
        ({"metadata": {"str": 5}}, "metadata.str: Input should be a valid string."),
        ({"integrations": [1]}, "integrations: not supported here: leave it out."),
        ({"method": 5}, "method: Input should be an object."),
    ],
)
def test_a_job_is_told_what_is_accepted(fields: dict[str, Any], message: str) -> None:
    assert job_refused(**fields).message == message


@pytest.mark.parametrize("field", ["tools", "tool_choice", "logit_bias", "parallel_tool_calls", "metadata"])
def test_openais_other_fields_are_not_called_misspelt(field: str) -> None:
    fault = chat_refused(**{field: "canary"})
    assert fault.message == f"'{field}' is not supported here: leave it out."
    assert (fault.code, fault.param) == ("unknown_parameter", field)


@pytest.mark.parametrize("name", ["temprature", "str", "int", "a[b]"])
def test_a_misspelt_field_is_named(name: str) -> None:
    fault = chat_refused(**{name: 1})
    assert fault.message == f"Unknown field '{name}'. Check its spelling, or leave it out."
    assert fault.param == name


@pytest.mark.parametrize(
    "fields",
    [
        {"n" * 500_000: 1},
        {"messages": [{"role": "user", "content": "x", "n" * 500_000: 1}]},
        {"response_format": {"type": "json_schema", "json_schema": {"n" * 500_000: 1}}},
    ],
)
def test_nothing_long_comes_back(fields: dict[str, Any]) -> None:
    fault = chat_refused(**fields)
    assert fault.param is not None
    assert len(fault.message) < 300
    assert len(fault.param) <= 200


def test_nor_a_long_name_in_metadata() -> None:
    fault = job_refused(metadata={"k" * 500_000: "x"})
    assert fault.message.endswith("…: the name should have at most 64 characters.")
    assert len(fault.message) < 300

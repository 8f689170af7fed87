"""What vLLM says of a request that cannot be, as its sources word it, and what the caller reads."""

import pytest

from webapp.chat.engine_errors import engine_refusal


@pytest.mark.parametrize(
    ("said", "code", "param", "reads"),
    [
        (
            "This model's maximum context length is 2048 tokens. However, your request has 3000 input tokens.",
            "context_length_exceeded",
            "messages",
            "2048 tokens",
        ),
        (
            "max_tokens=4096 cannot be greater than max_model_len=2048. Please request fewer output tokens.",
            "context_length_exceeded",
            "max_tokens",
            "2048 tokens",
        ),
        ("n must be 1 when using greedy sampling, got 8.", "invalid_request", "n", "temperature"),
        ('Unsupported type "secret"', "invalid_request", None, "response_format"),
    ],
)
def test_a_request_that_cannot_be(said: str, code: str, param: str | None, reads: str) -> None:
    fault = engine_refusal(400, {"code": 400, "message": said})
    assert (fault.status, fault.code, fault.param) == (400, code, param)
    assert reads in str(fault)
    assert "secret" not in str(fault)

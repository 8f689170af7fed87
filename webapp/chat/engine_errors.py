"""What the engine's faults mean to a caller. The user's are explained; ours are logged and given a name only."""

import re
from typing import Any

import structlog

from webapp.config.faults import BadRequest, Unavailable, Unprocessable, UserFault

log = structlog.get_logger(__name__)

#: vLLM's two ways to say it, and the parameter that each is about.
_CONTEXT = {
    "messages": re.compile(r"maximum context length is (\d+) tokens"),
    "max_tokens": re.compile(r"cannot be greater than max_model_len=(\d+)"),
}
_GREEDY = re.compile(r"n must be 1 when using greedy sampling")

#: Codes of the adapter plugin (adapters_store.errors) that a caller can act on.
_ADAPTER: dict[str, tuple[type[UserFault], str]] = {
    "adapter_corrupt": (
        Unprocessable,
        "This adapter's stored files are damaged, so it is not used. Activate another version, or train it again.",
    ),
    "adapter_not_found": (
        Unprocessable,
        "This adapter's files are gone from storage. Activate another version, or train it again.",
    ),
    "adapter_wrong_base": (
        BadRequest,
        "This adapter was made for other weights of its base model than are served now. Train it again.",
    ),
    "adapter_rank_too_high": (
        BadRequest,
        "This adapter's rank is higher than the engine serves. Train it with a lower one.",
    ),
    "adapter_unsupported": (
        BadRequest,
        "The engine cannot serve this kind of adapter. Train it with another method.",
    ),
}


class EngineFailed(UserFault):
    """Not the caller's doing, yet worth another try; what went wrong is in our log."""

    status = 502


class AnswerTimeout(UserFault):
    status = 504


class ReaderTooSlow(UserFault):
    """Only ever seen in a usage row, or by a client that wakes up."""

    status = 408


def engine_refusal(status: int, error: dict[str, Any]) -> UserFault:
    """The fault for the engine's status and `error` object. Its message stays here: it may quote the prompt."""
    code, message = error.get("code"), str(error.get("message", ""))
    if code in _ADAPTER:
        fault, text = _ADAPTER[code]
        log.warning("engine refused an adapter", code=code)
        return fault(text, code=code, param="model")
    for param, said in _CONTEXT.items():
        if context := said.search(message):
            return BadRequest(
                f"The conversation and its answer must fit into {context[1]} tokens. Shorten the messages or ask for "
                "a smaller max_tokens.",
                code="context_length_exceeded",
                param=param,
            )
    if _GREEDY.search(message):
        return BadRequest(
            "With temperature 0 all answers are the same: ask for n=1, or set a temperature above 0.",
            code="invalid_request",
            param="n",
        )
    if status in (400, 422):
        log.warning("engine refused a request", engine_status=status, param=error.get("param"))
        return BadRequest(
            "The engine cannot answer this request as it is asked. Simplify its parameters, first of all a JSON "
            "schema in response_format.",
            code="invalid_request",
        )
    if status == 404:
        return Unavailable(
            "This base model is in the catalogue, but no engine serves it now. Try again later.",
            code="model_not_served",
        )
    if status in (429, 503):
        return Unavailable("The engine has no room at the moment. Try again shortly.", code="engine_busy")
    log.error("engine failed", engine_status=status, code=code)
    return EngineFailed("The engine failed while answering. Try again.", code="engine_failed")


def engine_unreachable(error: Exception) -> UserFault:
    log.error("engine unreachable", reason=type(error).__name__)
    return Unavailable("The engine is starting or not running. Try again shortly.", code="engine_unavailable")


def engine_silent(error: Exception | None) -> UserFault:
    """It stopped before the end of an answer, or said nothing for too long."""
    log.error("engine stopped answering", reason=type(error).__name__ if error else "stream ended early")
    return Unavailable(
        "The engine stopped before the answer was complete. Send the request again.", code="engine_stopped"
    )

"""Trying an adapter on the engine: what it says after the probe's prompts, without the adapter and with it."""

import math
import uuid
from typing import Any

import httpx

from training_jobs.messages import Probe
from webapp.engine import Engine
from webapp.jobs.agreement import Said

#: Of the log-probabilities at each token, so many of the likeliest.
_LISTED = 5
_SECONDS = 120.0
#: "Come back": what engines and proxies answer while they start or have no room.
_BUSY = (429, 503)


class EngineAway(Exception):
    """No engine is there for anybody."""


class NotNow(Exception):
    """This adapter cannot be tried now, through no fault of its own. The message is for the job's owner."""


class TrialFailed(Exception):
    """The engine broke down over this adapter. Once may be chance."""


class Refused(Exception):
    """The engine will not serve this adapter."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def said_by_engine(probe: Probe, *, base: str, adapter: str, asked: Engine) -> tuple[list[Said], list[Said]]:
    """What the engine says to each question as the base model, and with the adapter.

    `base`, `adapter`: what the engine is asked for. Raises EngineAway, NotNow, TrialFailed, Refused.
    """
    # First: an engine that cannot answer as the base says nothing about the adapter.
    try:
        as_base = _said(base, probe, asked)
    except TrialFailed:
        raise NotNow("The engine cannot answer at the moment.") from None
    return as_base, _said(adapter, probe, asked)


def _said(model: str, probe: Probe, asked: Engine) -> list[Said]:
    body = {
        "model": model,
        "prompt": [question.prompt for question in probe.questions],
        "max_tokens": probe.tokens,
        # Greedily and to the end, whatever the base model's folder says of sampling.
        "temperature": 0,
        "top_p": 1,
        "repetition_penalty": 1,
        "ignore_eos": True,
        "logprobs": _LISTED,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
        # Fresh, so that the adapter is really computed: no cached prefix answers for it.
        "cache_salt": uuid.uuid4().hex,
    }
    try:
        return _read(model, probe, asked.complete(body, seconds=_SECONDS))
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise EngineAway(type(error).__name__) from None
    except httpx.HTTPError as error:
        # It took the request and did not answer: slow, or dead because of it.
        raise TrialFailed(type(error).__name__) from None


def _read(model: str, probe: Probe, answer: httpx.Response) -> list[Said]:
    try:
        document: dict[str, Any] = answer.json()
        if answer.status_code == 200:
            choices = sorted(document["choices"], key=lambda choice: choice["index"])
            said = [_of_choice(choice) for choice in choices]
            if [len(each.tokens) for each in said] == [probe.tokens] * len(probe.questions):
                return said
            raise ValueError("another number of tokens than it was asked for")
        error = document.get("error") or {}
        code, message = str(error.get("code", "")), str(error.get("message", ""))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError):
        code, message = "", ""
    match answer.status_code:
        case status if status in _BUSY:
            raise NotNow("The engine has no room at the moment.")
        case 401 | 403:
            raise EngineAway("the engine does not take this installation's key")
        case status if 400 <= status < 500 and (code.startswith("adapter_") or code == "bad_adapter_name"):
            raise Refused(code, message)
        case 404:
            raise NotNow(f"No engine serves {model} at the moment.")
        case 200:
            raise TrialFailed("an answer that cannot be compared")
    raise TrialFailed(f"status {answer.status_code}")


def _of_choice(choice: dict[str, Any]) -> Said:
    """Tokens are named "token_id:17". Raises ValueError, too, for numbers that are none."""
    listed = [
        {int(name.rpartition(":")[2]): float(logprob) for name, logprob in at.items()}
        for at in choice["logprobs"]["top_logprobs"]
    ]
    tokens = tuple(choice["token_ids"])
    for token, at in zip(tokens, listed, strict=True):
        if token not in at or not all(map(math.isfinite, at.values())):
            raise ValueError("no finite log-probability of what was said")
    return Said(tokens, tuple(listed))

"""Trying an adapter on the engine: does it load, and does it change what the base model would say?"""

import json
import uuid
from typing import Any

import httpx

from adapters_store.errors import AdapterMissing, StorageUnavailable
from adapters_store.s3 import object_key
from webapp.datasets.storage import store
from webapp.engine import Engine
from webapp.jobs.models import Job

#: A prompt that every adapter must change a little, should the job's own be unusable (too long, say).
_FIXED = [{"role": "user", "content": "Tell me something about yourself."}]
_PROMPTS = 3
_PROMPT_BYTES = 64_000
#: Above the noise between two batches of the same arithmetic, far below any trained adapter.
_SAME = 1e-3
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


class _PromptUnfit(Exception):
    """The engine takes the model but not this prompt, which may be longer than its context."""


def changes_answers(job: Job, name: str, asked: Engine) -> bool:
    """Whether the first token's log-probabilities differ from the base's for any prompt.

    `name`: what the engine is asked for. Raises EngineAway, NotNow, TrialFailed, Refused.
    """
    for messages in [*_prompts(job), _FIXED]:
        try:
            base = _of_base(job.base.name, messages, asked)
            adapted = _first_token(name, messages, asked)
        except _PromptUnfit:
            continue
        if set(base) != set(adapted) or any(abs(base[token] - adapted[token]) > _SAME for token in base):
            return True
    return False


def _of_base(name: str, messages: list[dict[str, str]], asked: Engine) -> dict[str, float]:
    """Asked first: an engine that cannot answer as the base says nothing about the adapter."""
    try:
        return _first_token(name, messages, asked)
    except TrialFailed:
        raise NotNow("The engine cannot answer at the moment.") from None


def _first_token(model: str, messages: list[dict[str, str]], asked: Engine) -> dict[str, float]:
    """Log-probabilities of the likeliest first tokens."""
    body = {
        "model": model,
        "messages": messages,
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 5,
        # Fresh, so that the adapter is really computed: no cached prefix answers for it.
        "cache_salt": uuid.uuid4().hex,
    }
    try:
        return _read(model, asked.complete(body, seconds=_SECONDS))
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise EngineAway(type(error).__name__) from None
    except httpx.HTTPError as error:
        # It took the request and did not answer: slow, or dead because of it.
        raise TrialFailed(type(error).__name__) from None


def _read(model: str, answer: httpx.Response) -> dict[str, float]:
    try:
        document: dict[str, Any] = answer.json()
        if answer.status_code == 200:
            top = document["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            return {each["token"]: each["logprob"] for each in top}
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
        case 400:
            raise _PromptUnfit
    raise TrialFailed(f"status {answer.status_code}")


def _prompts(job: Job) -> list[list[dict[str, str]]]:
    """What comes before the first trained answer in the first rows of what was trained on."""
    prompts = []
    for line in _head(job).split(b"\n")[:_PROMPTS]:
        try:
            turns = json.loads(line)["messages"]
        except ValueError:
            continue
        target = next(
            i for i, turn in enumerate(turns) if turn.get("weight", 1) == 1 and turn["role"] == "assistant"
        )
        prompts.append([{"role": turn["role"], "content": turn["content"]} for turn in turns[:target]])
    return prompts


def _head(job: Job) -> bytes:
    head = b""
    try:
        for chunk in store().stream(object_key(job.tenant.storage_id, job.conversations_sha256)):
            head += chunk
            if len(head) >= _PROMPT_BYTES:
                break
    except StorageUnavailable:
        raise NotNow("Storage cannot be reached at the moment.") from None
    except AdapterMissing:
        # The adapter is trained and can still be tried on the fixed prompt.
        return b""
    return head[:_PROMPT_BYTES]

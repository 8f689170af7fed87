"""gating → succeeded or failed: the engine itself says whether the adapter loads and changes what it answers."""

import json
import uuid
from dataclasses import dataclass
from typing import Any

import httpx
import structlog
from django.db import transaction

from adapters_store.errors import AdapterError
from adapters_store.manifest import Manifest
from adapters_store.names import qualified_name
from adapters_store.s3 import object_key
from webapp.config.settings import settings
from webapp.datasets.storage import storage_away, store
from webapp.jobs.lifecycle import job_fail_with
from webapp.jobs.locks import job_locked
from webapp.jobs.models import Job, State
from webapp.jobs.publish import job_succeed

_log = structlog.get_logger("attune.gate")
#: A prompt that every adapter must change a little, should the job's own be unusable (too long, say).
_FIXED = [{"role": "user", "content": "Tell me something about yourself."}]
_PROMPTS = 3
_PROMPT_BYTES = 64_000
#: Above the noise between two batches of the same arithmetic, far below any trained adapter.
_SAME = 1e-3
_SECONDS = 120.0


class EngineAway(Exception):
    """Nothing is known about the adapter; ask again later."""


class PromptUnfit(Exception):
    """The engine takes the model but not this prompt, which may be longer than its context."""


class Refused(Exception):
    """The engine will not serve this adapter."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True)
class Engine:
    """The engine's OpenAI server, asked with the gateway's key."""

    url: str
    key: str

    def first_token(self, *, model: str, messages: list[dict[str, str]], salt: str) -> dict[str, float]:
        """Log-probabilities of the likeliest first tokens; raises EngineAway, PromptUnfit, Refused."""
        body = {
            "model": model,
            "messages": messages,
            "max_tokens": 1,
            "temperature": 0,
            "logprobs": True,
            "top_logprobs": 5,
            # Nobody else's cached prefix answers for the adapter, nor the other way round.
            "cache_salt": salt,
        }
        try:
            answer = httpx.post(
                f"{self.url}/v1/chat/completions",
                json=body,
                headers={"Authorization": f"Bearer {self.key}"},
                timeout=httpx.Timeout(_SECONDS, connect=5),
                trust_env=False,
            )
        except httpx.HTTPError as error:
            raise EngineAway(type(error).__name__) from None
        return _read(answer)


def _read(answer: httpx.Response) -> dict[str, float]:
    try:
        document: dict[str, Any] = answer.json()
    except ValueError:
        raise EngineAway(f"status {answer.status_code} without JSON") from None
    if answer.status_code == 200:
        try:
            top = document["choices"][0]["logprobs"]["content"][0]["top_logprobs"]
            return {each["token"]: each["logprob"] for each in top}
        except (KeyError, IndexError, TypeError):
            raise EngineAway("an answer without log-probabilities") from None
    error = document.get("error") or {}
    code, message = str(error.get("code", "")), str(error.get("message", ""))
    if answer.status_code < 500 and (code.startswith("adapter_") or code == "bad_adapter_name"):
        raise Refused(code, message)
    if answer.status_code == 400:
        raise PromptUnfit
    raise EngineAway(f"status {answer.status_code}")


def engine() -> Engine:
    return Engine(settings().engine_url, settings().engine_key.get_secret_value())


def gate(*, job: uuid.UUID, asked: Engine) -> None:
    """Decide one job in gating; raises EngineAway when the engine cannot say now (the job waits)."""
    row = Job.objects.select_related("tenant", "base", "training_file").get(id=job)
    if row.state != State.GATING:
        return
    manifest = Manifest.model_validate(row.manifest)
    name = qualified_name(row.tenant.storage_id, manifest.name)
    try:
        different = _differs(row, name, asked)
    except Refused as refusal:
        _fail(job, code=refusal.code, message=f"The engine refused the adapter: {refusal.message}")
        return
    if different:
        with transaction.atomic():
            locked = job_locked(job)
            if locked.state == State.GATING:
                job_succeed(locked, manifest)
    else:
        _fail(
            job,
            code="adapter_without_effect",
            message="The trained adapter does not change what the model says. Train longer, with a higher "
            "learning_rate_multiplier, or on more examples.",
        )


def _differs(row: Job, name: str, asked: Engine) -> bool:
    """Whether the first token's log-probabilities differ from the base's for any prompt."""
    for messages in [*_prompts(row), _FIXED]:
        # Fresh salts, so that the adapter is really computed.
        try:
            base = asked.first_token(model=row.base.name, messages=messages, salt=uuid.uuid4().hex)
            adapted = asked.first_token(model=name, messages=messages, salt=uuid.uuid4().hex)
        except PromptUnfit:
            continue
        if set(base) != set(adapted) or any(abs(base[token] - adapted[token]) > _SAME for token in base):
            return True
    return False


def _prompts(row: Job) -> list[list[dict[str, str]]]:
    """What comes before the first trained answer in the first rows of the training file."""
    head = b""
    try:
        for chunk in store().stream(object_key(row.tenant.storage_id, row.conversations_sha256)):
            head += chunk
            if len(head) >= _PROMPT_BYTES:
                break
    except AdapterError:
        raise EngineAway(str(storage_away())) from None
    prompts = []
    for line in head[:_PROMPT_BYTES].split(b"\n")[:_PROMPTS]:
        try:
            turns = json.loads(line)["messages"]
        except ValueError:
            continue
        target = next(
            i for i, turn in enumerate(turns) if turn.get("weight", 1) == 1 and turn["role"] == "assistant"
        )
        prompts.append([{"role": turn["role"], "content": turn["content"]} for turn in turns[:target]])
    return prompts


@transaction.atomic
def _fail(job: uuid.UUID, *, code: str, message: str) -> None:
    row = job_locked(job)
    if row.state == State.GATING:
        job_fail_with(row, code=code, message=message)

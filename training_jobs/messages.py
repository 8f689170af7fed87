"""What webapp and a trainer say to each other: frozen, strict, and the only thing both import.

Conversations (conversation.py) and what is judged (judged.py) are of them, and imported from here like the rest.
The protocol itself (who may say what in which state) is in ARCHITECTURE.md, "The job protocol".
All bodies are JSON, which has no NaN and no infinity. `Sha256` is 64 lower-case hex digits; sizes are bytes; losses
are nats per token.
"""

import math
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, FiniteFloat, ValidationInfo, field_validator, model_validator

from adapters_store.manifest import Sha256
from adapters_store.names import Method, Position
from adapters_store.preft.config import DEFAULT_ALPHA, TARGET_MODULES, TargetModule
from training_jobs.conversation import Conversation as Conversation
from training_jobs.conversation import Turn as Turn
from training_jobs.judged import FEWEST_CONVERSATIONS as FEWEST_CONVERSATIONS
from training_jobs.judged import FEWEST_PAIRS as FEWEST_PAIRS
from training_jobs.judged import FEWEST_TOKENS as FEWEST_TOKENS
from training_jobs.judged import Comparison as Comparison
from training_jobs.judged import MemoryComparison as MemoryComparison
from training_jobs.judged import MemoryPreferenceComparison as MemoryPreferenceComparison
from training_jobs.judged import PreferenceComparison as PreferenceComparison
from training_jobs.message import Message as Message

TASK = "training_jobs.train"
PRESENCE_SECONDS = 5
HEARTBEAT_SECONDS = 5

Size = Annotated[int, Field(ge=0)]
JobState = Literal[
    "validating", "queued", "dispatched", "running", "paused", "gating", "succeeded", "failed", "cancelled"
]


def queue_name(base: str) -> str:
    """The Celery queue of a base model; a trainer listens on those of the bases it holds."""
    return f"train.{base}"


#: The share of a file's conversations that is held out to judge by, unless another is asked for, and the most to ask.
HELD_OUT_SHARE, HELD_OUT_MOST_SHARE = 0.1, 0.5
#: Of fewer rows (pieces of a chat count each) none is held out: each is needed.
HELD_OUT_FEWEST = 20
#: Held out at least and at most, whatever the share.
HELD_OUT_LEAST, HELD_OUT_MOST = 2, 64


def held_out_count(share: float, conversations: int) -> int:
    """How many of at least HELD_OUT_FEWEST conversations (or rows) to hold out, by webapp and by attune-train."""
    return min(HELD_OUT_MOST, max(HELD_OUT_LEAST, round(share * conversations)))


class Object(Message):
    """Bytes in S3, named by their content."""

    sha256: Sha256
    size: Size


class Download(Object):
    """An object with a presigned URL to read it; the reader verifies size and digest."""

    url: str


class Base(Message):
    """The base model that a job adapts: the folder's name at the trainer, and the digest it must have."""

    name: str
    digest: Sha256


#: OpenAI's names: from answers, or from preference pairs.
JobType = Literal["supervised", "dpo"]
#: Of DPO, unless another is asked for (Rafailov et al. 2023, appendix B), and the most to ask.
DEFAULT_BETA, MOST_BETA = 0.1, 2.0


class Hyperparameters(Message):
    """Resolved values ("auto" is decided by webapp before the job is queued).

    `beta` is DPO's, and makes the job one: how much it costs to move away from the base model. A batch of DPO has
    `batch_size` pairs.
    """

    n_epochs: Annotated[int, Field(ge=1, le=50)]
    batch_size: Annotated[int, Field(ge=1, le=256)]
    learning_rate: Annotated[float, Field(gt=0, le=1)]
    seed: int
    beta: Annotated[float, Field(gt=0, le=MOST_BETA)] | None = None

    @property
    def type(self) -> JobType:
        return "supervised" if self.beta is None else "dpo"


#: A decoder layer's index, from 0.
Layer = Annotated[int, Field(ge=0, lt=1000)]
#: What to say when target modules are chosen for another method.
ONLY_LORA_HAS_TARGETS = "Only lora has target_modules: direft and loreft act after decoder layers."


class Recipe(Message):
    """Which adapter to train. `alpha` matters to lora alone (scale = alpha / rank).

    `target_modules`: the projections that lora adapts, all of them if it is None; ReFT has none to choose. `layers`:
    the decoder layers that are adapted, all of them if it is None.
    """

    method: Method
    position: Position
    rank: Annotated[int, Field(ge=1, le=256)]
    alpha: Annotated[float, Field(gt=0)] = DEFAULT_ALPHA
    target_modules: Annotated[tuple[TargetModule, ...], Field(min_length=1)] | None = None
    layers: Annotated[tuple[Layer, ...], Field(min_length=1)] | None = None

    @field_validator("target_modules")
    @classmethod
    def _of_lora(
        cls, chosen: tuple[TargetModule, ...] | None, info: ValidationInfo
    ) -> tuple[TargetModule, ...] | None:
        """In one order, each once: the same choice is the same recipe, and the same adapter."""
        if chosen is None:
            return None
        if info.data.get("method", "lora") != "lora":
            raise ValueError(ONLY_LORA_HAS_TARGETS)
        return tuple(module for module in TARGET_MODULES if module in chosen)

    @field_validator("layers")
    @classmethod
    def _in_order(cls, chosen: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """Each once, for the same reason."""
        return None if chosen is None else tuple(sorted(set(chosen)))

    def check_layers(self, count: int) -> None:
        """Raises ValueError, with what to say, if a layer is chosen that a base model of `count` layers lacks."""
        if self.layers is not None and self.layers[-1] >= count:
            raise ValueError(
                f"The base model has no layer {self.layers[-1]}: its {count} layers are 0 to {count - 1}."
            )


class Defaults(NamedTuple):
    """What "auto" means for a method. `steps`: how many optimiser steps a small data set gets in all."""

    rank: int
    supervised_rate: float
    dpo_rate: float
    batch_size: int
    steps: int

    def learning_rate(self, type: JobType) -> float:
        return self.supervised_rate if type == "supervised" else self.dpo_rate


#: Chosen so that 40 short examples show a clear effect within 90 s (direft) or 180 s (lora) on two CPU cores. Their
#: held-out loss is best after 20 to 40 steps. ReFT's rate is higher: its scale is 1/sqrt(rank), lora's is alpha/rank.
#: Preference pairs need far less: at the rates for answers they are told apart within three steps, and what follows
#: only moves the adapter away from the base model.
DEFAULTS: dict[Method, Defaults] = {
    "lora": Defaults(rank=8, supervised_rate=1e-3, dpo_rate=5e-5, batch_size=4, steps=40),
    "direft": Defaults(rank=8, supervised_rate=3e-3, dpo_rate=1e-4, batch_size=4, steps=40),
    "loreft": Defaults(rank=8, supervised_rate=3e-3, dpo_rate=1e-4, batch_size=4, steps=40),
}


def auto_epochs(method: Method, *, examples: int, batch_size: int) -> int:
    """Passes over `examples` (trained assistant turns) that give about the method's steps: 1 to 10."""
    steps_per_epoch = max(1, math.ceil(examples / batch_size))
    return min(10, max(1, round(DEFAULTS[method].steps / steps_per_epoch)))


class Checkpoint(Object):
    """Training state after `step` optimiser steps, an object like any other."""

    step: Annotated[int, Field(ge=0)]


class CheckpointDownload(Checkpoint):
    url: str


class Event(Message):
    """A line for the job's event list. `metrics` uses OpenAI's keys (step, train_loss, valid_loss, …).

    `number`: its place among the events of its attempt, from 1 on, so that one that is sent again counts once.
    """

    number: Annotated[int, Field(ge=1, lt=2**31)]
    level: Literal["info", "warn", "error"] = "info"
    message: Annotated[str, Field(max_length=500)]
    metrics: dict[str, FiniteFloat] | None = None


class Claim(Message):
    """A worker takes a job. Idempotent for the same worker while it holds the epoch."""

    worker: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class JobSpec(Message):
    """Everything a trainer needs, in answer to a claim. `token` is good for this epoch alone.

    `failed_attempts`: so many ended badly before this one.
    """

    job: str
    epoch: int
    token: str
    base: Base
    recipe: Recipe
    hyperparameters: Hyperparameters
    conversations: Download
    checkpoint: CheckpointDownload | None = None
    failed_attempts: int = 0


class Heartbeat(Message):
    """Extends the lease; carries news since the last one that was answered, at most 200 events in their order."""

    epoch: int
    step: Annotated[int, Field(ge=0)]
    total_steps: Annotated[int, Field(ge=0)]
    events: Annotated[list[Event], Field(max_length=200)] = []
    checkpoint: Checkpoint | None = None


class HeartbeatReply(Message):
    """`stop`: the job was cancelled or paused; leave it (checkpoint first if paused)."""

    state: JobState
    stop: bool


class UploadRequest(Object):
    epoch: int


class UploadSlot(Message):
    """PUT the bytes to `url` with exactly these headers, unless they are already there."""

    url: str
    headers: dict[str, str]
    already_there: bool


class Report(Message):
    """What training found; how it went about it is in the manifest. Held-out losses are null when nothing was.
    Losses of DPO are nats per pair, those of a model that prefers neither answer ln 2.

    The adapter is the one after `best_step` (null when nothing was held out: then it is the last). `steps` were done;
    `stopped_at_step` is the last of them if training stopped early. `train_loss` is the mean of the ten steps up to
    the adapter's.
    """

    train_seconds: float
    steps: int
    trained_tokens: int
    held_out_tokens: int
    train_loss: FiniteFloat
    held_out_loss_before: FiniteFloat | None = None
    held_out_loss_after: FiniteFloat | None = None
    best_step: Annotated[int, Field(ge=1)] | None = None
    stopped_at_step: Annotated[int, Field(ge=1)] | None = None
    against_base: Comparison | PreferenceComparison | None = None
    against_memory: MemoryComparison | MemoryPreferenceComparison | None = None


#: The prompts that trainer and engine are compared on, and the tokens that both say after each.
PROBE_PROMPTS, PROBE_TOKENS = 3, 32

TokenId = Annotated[int, Field(ge=0, lt=2**31)]


class Continuation(Message):
    """What a model says greedily after a prompt, as the trainer computes it.

    Of each of `tokens`: its log-probability (nats), and that of the likeliest other token there.
    """

    tokens: Annotated[tuple[TokenId, ...], Field(min_length=1, max_length=PROBE_TOKENS)]
    logprobs: tuple[FiniteFloat, ...]
    runners_up: tuple[FiniteFloat, ...]

    @model_validator(mode="after")
    def _of_each_token(self) -> Self:
        if not len(self.tokens) == len(self.logprobs) == len(self.runners_up):
            raise ValueError("every token has one log-probability and one runner-up")
        return self


class Question(Message):
    """A prompt, and what the base model says after it without the adapter and with it."""

    prompt: Annotated[tuple[TokenId, ...], Field(min_length=1)]
    base: Continuation
    adapted: Continuation


class Probe(Message):
    """What the gate asks the engine, with the trainer's own answers; each has the same number of tokens.

    It holds somebody's words: it is an object in storage that is gone with the job's end, and part of no message.
    """

    questions: Annotated[tuple[Question, ...], Field(min_length=1, max_length=PROBE_PROMPTS)]

    @model_validator(mode="after")
    def _as_long(self) -> Self:
        answers = [answer for question in self.questions for answer in (question.base, question.adapted)]
        if len({len(answer.tokens) for answer in answers}) != 1:
            raise ValueError("all answers have the same number of tokens")
        return self

    @property
    def tokens(self) -> int:
        """In each answer."""
        return len(self.questions[0].base.tokens)


class Complete(Message):
    """The adapter's files are uploaded, `manifest` (manifest.json, which names the others) among them. Idempotent.

    `probe`: a Probe as JSON, uploaded beside them.
    """

    epoch: int
    manifest: Object
    probe: Object
    report: Report


#: The code of a fault that a trainer has no name for.
UNKNOWN_FAULT = "trainer_error"


class Fail(Message):
    """An honest end. `code` is stable (docs/errors.md); `retry` asks for another attempt, and this one is one of those
    that a job has if it `counts`."""

    epoch: int
    code: Annotated[str, Field(pattern=r"^[a-z_]{3,60}$")]
    message: Annotated[str, Field(max_length=1000)]
    retry: bool = False
    counts: bool = True


class Release(Message):
    """The worker is stopping in good order: back to the queue, from this checkpoint if there is one."""

    epoch: int
    checkpoint: Checkpoint | None = None


class StateReply(Message):
    state: JobState


#: Jobs in one message, at most.
MOST_TOGETHER = 64


class WorkerHello(Message):
    """Presence, every PRESENCE_SECONDS: the dispatcher sends work only where someone is alive.

    `together`: so many small jobs it wants in one message, but of the bases that are trained `alone` only one.
    """

    bases: list[str]
    device: str
    busy: bool
    together: Annotated[int, Field(ge=1, le=MOST_TOGETHER)] = 1
    alone: list[str] = []

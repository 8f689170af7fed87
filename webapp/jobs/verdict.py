"""What the gate decides, from numbers alone: does the adapter pass, does it become the active one, and what to say."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple

from training_jobs.messages import (
    FEWEST_CONVERSATIONS,
    FEWEST_PAIRS,
    FEWEST_TOKENS,
    Comparison,
    MemoryComparison,
    MemoryPreferenceComparison,
    PreferenceComparison,
    Probe,
    Report,
)
from webapp.jobs.agreement import Said, effect, from_trainer

#: Above the noise between two batches of the same arithmetic, far below any trained adapter.
SAME = 1e-3
#: How far engine and trainer may be apart in float32. Coarser arithmetic shows in what they say as the base model: then
#: the adapter may add half as much again.
EXACT, COARSE = 1e-3, 1.5
#: Of fewer tokens that both say before a tie parts them, nothing follows.
FEWEST_COMPARED = 24
#: Beyond this, engine and trainer do not have the same base model: no rounding does that.
OTHER_BASE = 2.0


@dataclass(frozen=True)
class Figures:
    """What was found on the engine: nats, the largest of all tokens compared.

    `effect`: how much the adapter changes what the engine says. `difference`: between engine and trainer, both with
    the adapter, over `tokens` tokens after `prompts` prompts; `base_difference`: both without it, over `base_tokens`.
    `allowed`: the most that `difference` may be.
    """

    prompts: int
    tokens: int
    base_tokens: int
    effect: float
    difference: float
    base_difference: float
    allowed: float

    @property
    def apart(self) -> bool:
        """Whether engine and trainer are further apart than coarse arithmetic explains."""
        known = self.base_tokens >= FEWEST_COMPARED or self.difference > OTHER_BASE
        return self.difference > self.allowed and known

    @property
    def uncertain(self) -> bool:
        """Whether they are further apart than is allowed, while too little is known of the base model to fail it."""
        return self.difference > self.allowed and not self.apart

    @property
    def too_few(self) -> bool:
        """Whether too little was compared to say that they agree; that they are apart, one token can say."""
        return self.tokens < FEWEST_COMPARED or self.uncertain


class Missed(NamedTuple):
    """The adapter does not pass, and why: a stable code and a sentence."""

    code: Literal["adapter_without_effect", "adapter_disagrees"]
    message: str


class Caution(NamedTuple):
    """The adapter passes, and there is something to know: a stable code and a sentence."""

    code: Literal[
        "too_little_compared",
        "worse_than_base",
        "too_little_held_out",
        "memory_prompt_wins",
        "memory_not_judged",
    ]
    message: str


def figures_of(probe: Probe, base: list[Said], adapted: list[Said]) -> Figures:
    """Compare what the engine said to the probe's questions with what the trainer did."""
    of_base = from_trainer([question.base for question in probe.questions], base)
    of_adapter = from_trainer([question.adapted for question in probe.questions], adapted)
    return Figures(
        prompts=len(probe.questions),
        tokens=of_adapter.tokens,
        base_tokens=of_base.tokens,
        effect=effect(base, adapted),
        difference=of_adapter.largest,
        base_difference=of_base.largest,
        allowed=max(EXACT, COARSE * of_base.largest),
    )


def same_base(figures: Figures) -> bool:
    """Whether the engine says, as the base model, what the trainer's base model says. If not, it says nothing else."""
    return figures.base_difference <= OTHER_BASE


def missed(figures: Figures) -> Missed | None:
    """What the adapter does not pass for, if it does not pass."""
    kept = "The adapter is kept for inspection and answers nobody."
    if figures.effect <= SAME:
        return Missed(
            "adapter_without_effect",
            f"The trained adapter does not change what the model says (by {figures.effect:.1g} at most, over "
            f"{figures.prompts} prompts). Train longer, with a higher learning_rate_multiplier, or on more examples. "
            f"{kept}",
        )
    if figures.apart:
        return Missed(
            "adapter_disagrees",
            f"The engine does not say what the trainer computed: log-probabilities are up to {figures.difference:.2g} "
            f"apart over {figures.tokens} tokens, where {figures.allowed:.2g} is allowed (without the adapter: "
            f"{figures.base_difference:.2g} over {figures.base_tokens}). This is our fault: start the job again, "
            f"and report it if it stays. {kept}",
        )
    return None


def cautions(report: Report, figures: Figures) -> list[Caution]:
    """What to know of an adapter that passes."""
    base, memory = report.against_base, report.against_memory
    found = []
    if figures.too_few:
        found.append(Caution("too_little_compared", _too_few(figures)))
    if base is None or not base.enough:
        return [*found, Caution("too_little_held_out", _too_little(base))]
    if base.worse:
        found.append(
            Caution(
                "worse_than_base",
                f"On what was held out the adapter is worse than the base model: {_beside(base)} So it is not made the "
                "active one; you can still do that.",
            )
        )
    if memory is None or not memory.enough:
        found.append(Caution("memory_not_judged", _memory_not_judged(memory)))
    elif memory.worse:
        found.append(
            Caution(
                "memory_prompt_wins",
                f"Telling the base model {memory.quoted} of your conversations in a system prompt does better than "
                f"the adapter on what was held out: {_beside(memory)} Train on more examples, or use such a prompt.",
            )
        )
    return found


def activates(figures: Figures, found: list[Caution]) -> bool:
    """Whether an adapter that passes, and of which this was `found`, becomes its end user's active one by itself."""
    return not figures.uncertain and "worse_than_base" not in [caution.code for caution in found]


def _too_few(figures: Figures) -> str:
    compared = (
        f"Engine and trainer said the same {figures.tokens} tokens with the adapter and {figures.base_tokens} without "
        "it, until ties parted them: too little to say whether the engine does with the adapter what the trainer "
        f"computed. It takes {FEWEST_COMPARED} of each."
    )
    if not figures.uncertain:
        return f"{compared} Try the adapter yourself, or start the job again."
    return (
        f"{compared} Their log-probabilities are up to {figures.difference:.2g} apart, where "
        f"{figures.allowed:.2g} is allowed, so it is not made the active one: try it, and do that yourself, or start "
        "the job again."
    )


def _too_little(base: Comparison | PreferenceComparison | None) -> str:
    takes = f"{FEWEST_CONVERSATIONS} conversations and {FEWEST_TOKENS} tokens"
    if base is None:
        measured = "Nothing was held out"
    elif isinstance(base, PreferenceComparison):
        measured, takes = f"Only {base.pairs} preference pairs were held out", f"{FEWEST_PAIRS} of them"
    else:
        measured = f"Only {base.tokens} tokens of {base.conversations} conversations were held out"
    return (
        f"{measured}: too little to say whether the adapter is better than the base model. It takes {takes}: name a "
        "validation_file, or upload more."
    )


def _memory_not_judged(memory: MemoryComparison | MemoryPreferenceComparison | None) -> str:
    asked = (
        "Whether telling the base model your conversations in a system prompt would do as well is not known: "
    )
    if memory is None:
        return f"{asked}none is short enough to be quoted, or the prompt is more than the trainer has memory for."
    if isinstance(memory, MemoryPreferenceComparison):
        return (
            f"{asked}{memory.pairs} preference pairs fit behind such a prompt, and it takes {FEWEST_PAIRS}."
        )
    return (
        f"{asked}it was tried on {memory.tokens} tokens of {memory.conversations} held-out conversations, and it takes "
        f"{FEWEST_TOKENS} of {FEWEST_CONVERSATIONS}."
    )


def _beside(found: Comparison | PreferenceComparison) -> str:
    """The adapter's figure beside the other model's, where it is worse."""
    if isinstance(found, PreferenceComparison):
        return (
            f"it prefers the right answer in {found.adapter_accuracy:.0%} of {found.pairs} pairs instead of "
            f"{found.accuracy:.0%} (95 % sure of at least {-found.high:.0%} less)."
        )
    beside = f"a loss of {found.adapter_loss:.2f} instead of {found.loss:.2f}"
    return f"{beside} (95 % sure of at least {found.low:.2f} more)."


def as_report(figures: Figures, found: list[Caution], *, activates: bool) -> dict[str, Any]:
    """For the job's report, in the API and on its page."""
    return {
        "engine": asdict(figures),
        "warnings": [caution._asdict() for caution in found],
        "activated": activates,
    }

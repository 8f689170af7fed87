"""How an adapter does on what was held out, beside another model: parts of a job's report (messages.py)."""

from typing import Annotated

from pydantic import Field, FiniteFloat

from training_jobs.message import Message

#: Fewer held-out tokens or conversations say too little: with four, all of them are worse once in sixteen times by
#: chance alone.
FEWEST_TOKENS, FEWEST_CONVERSATIONS = 100, 5


class Comparison(Message):
    """Losses (nats per token) on the same held-out targets: the trained adapter's, and what it is compared with.

    `low` to `high` is the 95 % interval of `adapter_loss` minus `loss`, found by drawing whole conversations again and
    again (training_jobs.comparison): below 0 the adapter is better, above 0 it is worse.
    """

    conversations: Annotated[int, Field(ge=1)]
    tokens: Annotated[int, Field(ge=1)]
    loss: FiniteFloat
    adapter_loss: FiniteFloat
    low: FiniteFloat
    high: FiniteFloat

    @property
    def enough(self) -> bool:
        """Whether it was measured on enough to judge by."""
        return self.tokens >= FEWEST_TOKENS and self.conversations >= FEWEST_CONVERSATIONS

    @property
    def worse(self) -> bool:
        """Whether the adapter is worse, beyond the interval."""
        return self.enough and self.low > 0


class MemoryComparison(Comparison):
    """With the base model under a system prompt of `prompt_tokens` that quotes `quoted` conversations of the data."""

    quoted: Annotated[int, Field(ge=1)]
    prompt_tokens: Annotated[int, Field(ge=1)]


#: Of fewer pairs a single one is more than a tenth of the accuracy.
FEWEST_PAIRS = 10
Share = Annotated[float, Field(ge=0, le=1)]


class PreferenceComparison(Message):
    """Of the same held-out preference pairs, the share in which the preferred answer is the likelier one.

    Likelier is a lower loss a token, since that of the whole answer would mostly say which is shorter. `low` to `high`
    is the 95 % interval of `adapter_accuracy` minus `accuracy`, found as in Comparison by drawing prompts, each with
    its pairs: above 0 the adapter is better, below 0 it is worse.
    """

    pairs: Annotated[int, Field(ge=1)]
    accuracy: Share
    adapter_accuracy: Share
    low: FiniteFloat
    high: FiniteFloat

    @property
    def enough(self) -> bool:
        """Whether it was measured on enough to judge by."""
        return self.pairs >= FEWEST_PAIRS

    @property
    def worse(self) -> bool:
        """Whether the adapter is worse, beyond the interval."""
        return self.enough and self.high < 0


class MemoryPreferenceComparison(PreferenceComparison):
    """As MemoryComparison."""

    quoted: Annotated[int, Field(ge=1)]
    prompt_tokens: Annotated[int, Field(ge=1)]

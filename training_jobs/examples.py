"""What is trained on and judged by, in memory: token ids in one array, and the rows that were left out."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, Self

import numpy as np

from training_jobs.memory_prompt import MOST_TARGETS, MemoryPrompt

Reason = Literal["no_trained_turn", "no_prompt", "too_long", "refused"]

#: What to say of rows that cannot be trained on.
REASONS: dict[Reason, str] = {
    "no_trained_turn": "have no assistant message to learn from",
    "no_prompt": "start with the assistant, so that message has nothing to answer",
    "too_long": "are longer than {max_tokens} tokens; split or shorten them",
    "refused": "have roles in an order that the base model's chat template does not take",
}
_NAMED = 5
#: Held-out examples that are scored; more would say the same and take longer.
HELD_OUT_MAX = 256


@dataclass(frozen=True)
class Example:
    """One assistant turn. `tokens` [T] int32 is prompt and target; the first `prompt_length` are the prompt."""

    tokens: np.ndarray
    prompt_length: int

    @property
    def target_length(self) -> int:
        return len(self.tokens) - self.prompt_length


class ExampleList:
    """Examples in the order they were added, 4 bytes a token: a list of ints takes many times that."""

    def __init__(self) -> None:
        self._tokens = array("i")
        self._ends = array("q", [0])
        self._prompt_lengths = array("i")
        self._conversations = array("q")

    def add(self, prompt: Sequence[int], target: Sequence[int], *, conversation: int) -> None:
        """`conversation`: the number of the one that it is from, so that those of one are known to be alike."""
        self._conversations.append(conversation)
        self._tokens.extend(prompt)
        self._tokens.extend(target)
        self._ends.append(len(self._tokens))
        self._prompt_lengths.append(len(prompt))

    def __len__(self) -> int:
        return len(self._prompt_lengths)

    def __getitem__(self, index: int) -> Example:
        tokens = self._tokens[self._ends[index] : self._ends[index + 1]]
        return Example(np.frombuffer(tokens, dtype=np.int32), self._prompt_lengths[index])

    def __iter__(self) -> Iterator[Example]:
        return (self[index] for index in range(len(self)))

    @property
    def tokens(self) -> int:
        """In all examples together; a prompt that several targets share counts for each."""
        return len(self._tokens)

    @property
    def conversations(self) -> Sequence[int]:
        """Of each example."""
        return self._conversations

    @property
    def target_tokens(self) -> int:
        return len(self._tokens) - sum(self._prompt_lengths)


@dataclass
class LeftOut:
    """Turns or rows left out for one reason, and the ids of the first rows; `more`: there are others."""

    count: int = 0
    first: list[str] = field(default_factory=list)
    more: bool = False


@dataclass
class Examples:
    """What a file gives to train and to judge by, and what was left out, with why.

    `rows_each`: so many of them, one after the other, are learned as one. It is 2 for preference pairs: the preferred
    answer's, then that of the rejected one. `memory`: what a prompt could say of the same rows instead of training on
    them.
    """

    rows_each: Literal[1, 2] = 1
    train: ExampleList = field(default_factory=ExampleList)
    held_out: ExampleList = field(default_factory=ExampleList)
    left_out: dict[Reason, LeftOut] = field(default_factory=dict)
    memory: MemoryPrompt = field(default_factory=MemoryPrompt)

    @classmethod
    def of_pairs(cls) -> Self:
        return cls(rows_each=2, memory=MemoryPrompt(most=2 * MOST_TARGETS))

    @property
    def count(self) -> tuple[int, int]:
        """Of what is trained on and of what is held out, pairs as one."""
        return len(self.train) // self.rows_each, len(self.held_out) // self.rows_each

    @property
    def tokens(self) -> int:
        return self.train.tokens + self.held_out.tokens

    def told(self) -> str:
        """What there is to train on and to judge by, as a sentence."""
        trained, held_out = self.count
        kind = "assistant messages" if self.rows_each == 1 else "preference pairs"
        learned = self.train.target_tokens
        return (
            f"Training on {trained:,} {kind} ({learned:,} tokens, after prompts of "
            f"{self.train.tokens - learned:,}), judging by {held_out:,} held-out ones."
        )

    def leave_out(self, row: str, reason: Reason, *, turns: int = 1) -> None:
        left = self.left_out.setdefault(reason, LeftOut())
        left.count += turns
        if row not in left.first:
            if len(left.first) < _NAMED:
                left.first.append(row)
            else:
                left.more = True

    def complaints(self, *, max_tokens: int) -> list[str]:
        """One sentence a reason, with the first rows' ids. Nothing of their content."""
        sentences = []
        kind = "assistant turns or rows" if self.rows_each == 1 else "preference pairs"
        for reason, left in self.left_out.items():
            named = ", ".join(left.first) + (", …" if left.more else "")
            why = REASONS[reason].format(max_tokens=max_tokens)
            sentences.append(f"Left out {left.count} {kind} that {why}: {named}.")
        return sentences

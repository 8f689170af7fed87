"""Normalised conversations (JSONL, one `Conversation` a line) as examples: one for each trained assistant turn."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from training_jobs.chat_template import ChatEncoder, TemplateRefused, Turn
from training_jobs.errors import OurFault

Reason = Literal["no_trained_turn", "no_prompt", "too_long", "refused"]

#: What to say of rows that cannot be trained on.
REASONS: dict[Reason, str] = {
    "no_trained_turn": "have no assistant message to learn from",
    "no_prompt": "start with the assistant, so that message has nothing to answer",
    "too_long": "are longer than {max_tokens} tokens; split them into shorter conversations",
    "refused": "have roles in an order that the base model's chat template does not take",
}


class Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Literal["system", "user", "assistant"]
    content: str
    weight: Literal[0, 1] = 1


class Conversation(BaseModel):
    """One line of the file. Messages other than the assistant's are never trained, whatever their weight."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    messages: Annotated[list[Message], Field(min_length=1)]
    split: Literal["train", "validation"] = "train"


@dataclass(frozen=True)
class Example:
    """One assistant turn. `tokens` is prompt and target; the first `prompt_length` of them are the prompt."""

    row: str
    tokens: list[int]
    prompt_length: int

    @property
    def target_length(self) -> int:
        return len(self.tokens) - self.prompt_length


@dataclass
class Examples:
    """What a file gives to train and to judge by, and the rows that were left out, with why."""

    train: list[Example] = field(default_factory=list)
    held_out: list[Example] = field(default_factory=list)
    left_out: list[tuple[str, Reason]] = field(default_factory=list)

    def complaints(self, *, max_tokens: int) -> list[str]:
        """One sentence a reason, with the first rows' ids. Nothing of their content."""
        sentences = []
        for reason, count in Counter(reason for _, reason in self.left_out).items():
            rows = [row for row, why in self.left_out if why == reason]
            named = ", ".join(rows[:5]) + (", …" if count > 5 else "")
            why = REASONS[reason].format(max_tokens=max_tokens)
            sentences.append(f"Left out {count} assistant turns or rows that {why}: {named}.")
        return sentences


def examples_read(lines: Iterable[str | bytes], encoder: ChatEncoder, *, max_tokens: int) -> Examples:
    """Examples of a normalised file, in its order.

    A turn whose prompt and target exceed `max_tokens` is left out whole: a cut target would teach to stop early, a
    cut prompt is one that serving never sees. Raises OurFault for a line that is not a normalised conversation.
    """
    examples = Examples()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            conversation = Conversation.model_validate_json(line)
        except ValidationError as error:
            kind = error.errors(include_input=False, include_url=False)[0]["msg"]
            raise OurFault(
                "conversations_invalid",
                f"Line {number} of the prepared file is not a conversation ({kind}). This is our fault: report it.",
            ) from None
        _add(examples, conversation, encoder, max_tokens=max_tokens)
    return examples


def _add(examples: Examples, conversation: Conversation, encoder: ChatEncoder, *, max_tokens: int) -> None:
    turns = [Turn(message.role, message.content) for message in conversation.messages]
    trained = [
        index
        for index, message in enumerate(conversation.messages)
        if message.role == "assistant" and message.weight
    ]
    if not trained:
        examples.left_out.append((conversation.id, "no_trained_turn"))
    for index in trained:
        if all(turn.role == "system" for turn in turns[:index]):
            examples.left_out.append((conversation.id, "no_prompt"))
            continue
        try:
            prompt, target = encoder.prompt(turns[:index]), encoder.target(turns[: index + 1])
        except TemplateRefused:
            examples.left_out.append((conversation.id, "refused"))
            continue
        if len(prompt) + len(target) > max_tokens:
            examples.left_out.append((conversation.id, "too_long"))
            continue
        split = examples.train if conversation.split == "train" else examples.held_out
        split.append(Example(row=conversation.id, tokens=prompt + target, prompt_length=len(prompt)))

"""Conversations as token ids: exactly those of the model's chat template, except that no content is a command."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from adapters_store.control_tokens import ControlTokens


@dataclass(frozen=True)
class Turn:
    role: Literal["system", "user", "assistant"]
    content: str


class TemplateUnfit(Exception):
    """The base model's chat template cannot say where an assistant turn starts or ends."""


class TemplateRefused(Exception):
    """The template does not take these turns: two of one role in a row, or a system message, say."""


class ChatEncoder:
    """A tokenizer and its chat template."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._control = ControlTokens(tokenizer)
        if not tokenizer.chat_template or not self._control:
            raise TemplateUnfit(
                "The base model has no chat template, or no control tokens to mark its turns with."
            )
        self._tokenizer = tokenizer

    def prompt(self, turns: Sequence[Turn]) -> list[int]:
        """The ids of a prompt: `turns`, then the opening of an assistant's turn. Raises TemplateRefused."""
        guard = self._control.guard(turn.content for turn in turns)
        hidden = [replace(turn, content=guard.hide(turn.content)) for turn in turns]
        return guard.ids(self._render(hidden, opened=True))

    def target(self, turns: Sequence[Turn]) -> list[int]:
        """The ids that the assistant should say after prompt(turns[:-1]): the last turn and the token that ends it.

        Raises TemplateUnfit if the template renders the earlier turns differently once the answer is there, or ends
        the answer without a control token.
        """
        guard = self._control.guard(turn.content for turn in turns)
        hidden = [replace(turn, content=guard.hide(turn.content)) for turn in turns]
        opened = self._render(hidden[:-1], opened=True)
        whole = self._render(hidden, opened=False)
        end = self._control.search(whole, len(opened))
        if not whole.startswith(opened) or end is None:
            raise TemplateUnfit(
                "The base model's chat template does not continue the prompt with the answer and an end-of-turn token."
            )
        prompt, both = guard.ids(opened), guard.ids(whole[: end.end()])
        if both[: len(prompt)] == prompt:
            return both[len(prompt) :]
        return guard.ids(whole[len(opened) : end.end()])  # the answer's first letters merged into the prompt

    def _render(self, turns: Sequence[Turn], *, opened: bool) -> str:
        messages = [{"role": turn.role, "content": turn.content} for turn in turns]
        try:
            text: str = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=opened
            )
        except TemplateError:
            raise TemplateRefused from None
        return text

"""Conversations as token ids: exactly those of the model's chat template, except that no content is a command."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from jinja2 import TemplateError

from adapters_store.control_tokens import ControlTokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Turn(Protocol):
    @property
    def role(self) -> str: ...
    @property
    def content(self) -> str: ...


class TemplateUnfit(Exception):
    """The base model's chat template cannot say where an assistant turn starts or ends."""


class TemplateRefused(Exception):
    """The template does not take these turns: two of one role in a row, or a system message, say."""


class TooLong(Exception):
    """More tokens than allowed. `prompt_alone`: whatever the answer, so a prompt that holds this one is too."""

    def __init__(self, *, prompt_alone: bool) -> None:
        super().__init__()
        self.prompt_alone = prompt_alone


class ChatEncoder:
    """A tokenizer and its chat template."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self._control = ControlTokens(tokenizer)
        if not tokenizer.chat_template or not self._control:
            raise TemplateUnfit(
                "The base model has no chat template, or no control tokens to mark its turns with."
            )
        self._tokenizer = tokenizer
        self._longest = max(map(len, tokenizer.get_vocab()))

    def prompt_and_target(self, turns: Sequence[Turn], *, max_tokens: int) -> tuple[list[int], list[int]]:
        """Ids of the prompt (all but the last turn, and the opening of an assistant's) and of what should follow.

        The prompt's are those that serving has for the same messages; the target is the last turn, an assistant's,
        and the token that ends it. Raises TooLong if they are more than `max_tokens` together, without tokenizing
        what its length in characters proves to be; TemplateRefused; TemplateUnfit if the template renders the
        earlier turns differently once the answer is there, or ends the answer without a control token.
        """
        guard = self._control.guard(turn.content for turn in turns)
        messages = [{"role": turn.role, "content": guard.hide(turn.content)} for turn in turns]
        most = max_tokens * self._longest  # no token stands for more characters than its name has
        opened = self._render(messages[:-1], opened=True)
        if len(opened) > most:
            raise TooLong(prompt_alone=True)
        whole = self._render(messages, opened=False)
        end = self._control.search(whole, len(opened))
        if not whole.startswith(opened) or end is None:
            raise TemplateUnfit(
                "The base model's chat template does not continue the prompt with the answer and an end-of-turn token."
            )
        answer = whole[len(opened) : end.end()]
        if len(opened) + len(answer) > most:
            raise TooLong(prompt_alone=False)
        # Nothing merges across a control token: up to the last one of the prompt, its ids are the same with an answer.
        last = self._control.last(opened)
        head, tail = guard.ids(opened[:last]), guard.ids(opened[last:])
        prompt = head + tail
        if len(prompt) > max_tokens:
            raise TooLong(prompt_alone=True)
        both = guard.ids(opened[last:] + answer)
        if both[: len(tail)] == tail:
            target = both[len(tail) :]
        else:
            target = guard.ids(answer)  # the answer's first letters merged into the prompt
        if len(prompt) + len(target) > max_tokens:
            raise TooLong(prompt_alone=False)
        return prompt, target

    def count(self, text: str, *, at_most: int) -> int | None:
        """Tokens of plain text; None if they are more than `at_most`, as its length alone may prove."""
        if len(text) > at_most * self._longest:
            return None
        tokens = len(self._tokenizer(text, add_special_tokens=False)["input_ids"])
        return tokens if tokens <= at_most else None

    def _render(self, messages: Sequence[dict[str, str]], *, opened: bool) -> str:
        try:
            text: str = self._tokenizer.apply_chat_template(
                list(messages), tokenize=False, add_generation_prompt=opened
            )
        except TemplateError:
            raise TemplateRefused from None
        return text

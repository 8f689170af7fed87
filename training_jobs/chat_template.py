"""Conversations as token ids: exactly those of the model's chat template, except that no content is a command.

A chat template writes text, and a tokenizer reads control tokens out of any text: a message that quotes
`<|im_end|>` would end its own turn. Here only the control tokens that the template itself writes are read as such.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase


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
        control = [token.content for token in tokenizer.added_tokens_decoder.values() if token.special]
        if not tokenizer.chat_template or not control:
            raise TemplateUnfit(
                "The base model has no chat template, or no control tokens to mark its turns with."
            )
        self._tokenizer = tokenizer
        self._control = re.compile(
            "|".join(re.escape(token) for token in sorted(control, key=len, reverse=True))
        )

    def prompt(self, turns: Sequence[Turn]) -> list[int]:
        """The ids of a prompt: `turns`, then the opening of an assistant's turn. Raises TemplateRefused."""
        guard = _Guard(self._control, turns)
        return self._ids(self._render(guard.turns, opened=True), guard)

    def target(self, turns: Sequence[Turn]) -> list[int]:
        """The ids that the assistant should say after prompt(turns[:-1]): the last turn and the token that ends it.

        Raises TemplateUnfit if the template renders the earlier turns differently once the answer is there, or ends
        the answer without a control token.
        """
        guard = _Guard(self._control, turns)
        opened = self._render(guard.turns[:-1], opened=True)
        whole = self._render(guard.turns, opened=False)
        end = self._control.search(whole, len(opened))
        if not whole.startswith(opened) or end is None:
            raise TemplateUnfit(
                "The base model's chat template does not continue the prompt with the answer and an end-of-turn token."
            )
        prompt, both = self._ids(opened, guard), self._ids(whole[: end.end()], guard)
        if both[: len(prompt)] == prompt:
            return both[len(prompt) :]
        return self._ids(
            whole[len(opened) : end.end()], guard
        )  # the answer's first letters merged into the prompt

    def _render(self, turns: Sequence[Turn], *, opened: bool) -> str:
        messages = [{"role": turn.role, "content": turn.content} for turn in turns]
        try:
            text: str = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=opened
            )
        except TemplateError:
            raise TemplateRefused from None
        return text

    def _ids(self, text: str, guard: "_Guard") -> list[int]:
        if not guard.quoted:
            return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])
        ids: list[int] = []
        start = 0
        for match in [*self._control.finditer(text), None]:
            plain = guard.restore(text[start : match.start() if match else len(text)])
            if plain:
                ids += self._tokenizer(plain, add_special_tokens=False, split_special_tokens=True)[
                    "input_ids"
                ]
            if match:
                ids.append(self._tokenizer.convert_tokens_to_ids(match.group()))
                start = match.end()
        return ids


class _Guard:
    """The turns with every quoted control token replaced by a mark that no text contains, and the way back."""

    def __init__(self, control: re.Pattern[str], turns: Sequence[Turn]) -> None:
        self.quoted = sorted({found for turn in turns for found in control.findall(turn.content)})
        contents = "".join(turn.content for turn in turns)
        salt = next(chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in contents)
        self._marks = {token: f"{salt}{index}{salt}" for index, token in enumerate(self.quoted)}
        self.turns = [
            replace(turn, content=control.sub(lambda match: self._marks[match.group()], turn.content))
            for turn in turns
        ]

    def restore(self, text: str) -> str:
        for token, mark in self._marks.items():
            text = text.replace(mark, token)
        return text

"""What a message quotes is never a command: control tokens count only where the chat template itself wrote them.

A chat template writes text, and a tokenizer reads control tokens out of any text: a message that quotes
`<|im_end|>` would end its own turn, and the next words could pose as the system's. Trainer and engine both tokenize
by this one rule, so a prompt has the same tokens, and the same length, on both sides.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class ControlTokens:
    """The control (special) tokens of a tokenizer; false if it has none."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase") -> None:
        self._tokenizer = tokenizer
        self._ids = {
            token.content: ident for ident, token in tokenizer.added_tokens_decoder.items() if token.special
        }
        longest_first = sorted(self._ids, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def __bool__(self) -> bool:
        return bool(self._ids)

    def search(self, text: str, start: int = 0) -> re.Match[str] | None:
        return self._pattern.search(text, start)

    def last(self, text: str) -> int:
        """Where the last control token of `text` starts; 0 if it has none."""
        return max((match.start() for match in self._pattern.finditer(text)), default=0)

    def guard(self, contents: Iterable[str]) -> "Guard":
        return Guard(self._tokenizer, self._ids, self._pattern, list(contents))


class Guard:
    """The way around the template for what some contents quote; false if they quote no control token."""

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        control_ids: Mapping[str, int],
        pattern: re.Pattern[str],
        contents: list[str],
    ) -> None:
        self._tokenizer, self._control_ids, self._pattern = tokenizer, control_ids, pattern
        self._quoted = sorted({found for content in contents for found in pattern.findall(content)})
        # A mark is plain text that occurs in no content, whatever stands beside it: a number between two private
        # characters, one that opens and one that closes, that no content has.
        together = set("".join(contents)) if self._quoted else set()
        private = (chr(code) for code in range(0xE000, 0xF8FF) if chr(code) not in together)
        self._open, self._close = next(private), next(private)
        self._mark = re.compile(f"{self._open}([0-9]+){self._close}")
        self._number = {token: number for number, token in enumerate(self._quoted)}

    def __bool__(self) -> bool:
        return bool(self._quoted)

    def hide(self, content: str) -> str:
        """The content as the template is to see it: a mark in the place of every quoted control token."""
        return self._pattern.sub(
            lambda match: f"{self._open}{self._number[match.group()]}{self._close}", content
        )

    def ids(self, rendered: str) -> list[int]:
        """The ids of what the template made of hidden contents; what they quoted becomes plain text again."""
        if not self:
            return list(self._tokenizer(rendered, add_special_tokens=False)["input_ids"])
        ids: list[int] = []
        start = 0
        for match in [*self._pattern.finditer(rendered), None]:
            plain = self._show(rendered[start : match.start() if match else len(rendered)])
            if plain:
                ids += self._tokenizer(plain, add_special_tokens=False, split_special_tokens=True)[
                    "input_ids"
                ]
            if match:
                ids.append(self._control_ids[match.group()])
                start = match.end()
        return ids

    def _show(self, text: str) -> str:
        return self._mark.sub(lambda match: self._quoted[int(match[1])], text)

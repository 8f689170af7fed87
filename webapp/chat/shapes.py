"""OpenAI's chat shapes, rebuilt field by field: nothing of the engine passes that a client should not see."""

import time
from dataclasses import dataclass, field
from typing import Any

from webapp.chat.answer import Chunk, Tally

#: The engine's reasons that OpenAI's clients do not know.
_REASONS = {"repetition": "stop", "abort": "length"}


@dataclass
class _Choice:
    index: int
    content: list[str] = field(default_factory=list)
    logprobs: list[dict[str, Any]] | None = None
    finish_reason: str | None = None


class Shape:
    """The chunks, or the whole completion, of one request, under the names that the caller knows."""

    def __init__(self, completion_id: str, model: str, *, cached: bool) -> None:
        """`cached`: whether the caller may know which tokens came from the prefix cache."""
        self._cached = cached
        self._id = completion_id
        self._model = model
        self._created = int(time.time())
        self._choices: dict[int, _Choice] = {}

    def add(self, chunk: Chunk) -> None:
        """Gather a chunk for `completion`."""
        for part in chunk["choices"]:
            choice = self._choices.setdefault(part["index"], _Choice(part["index"]))
            choice.content.append(part["delta"].get("content") or "")
            choice.finish_reason = _reason(part) or choice.finish_reason
            if part.get("logprobs"):
                choice.logprobs = (choice.logprobs or []) + (part["logprobs"].get("content") or [])

    def completion(self, tally: Tally) -> dict[str, Any]:
        choices = [self._choices[index] for index in sorted(self._choices)]
        return {
            "id": self._id,
            "object": "chat.completion",
            "created": self._created,
            "model": self._model,
            "choices": [
                {
                    "index": choice.index,
                    "message": {"role": "assistant", "content": "".join(choice.content), "refusal": None},
                    "logprobs": _logprobs(choice.logprobs),
                    "finish_reason": choice.finish_reason or "stop",
                }
                for choice in choices
            ],
            "usage": tally.usage(cached=self._cached),
        }

    def chunk(self, chunk: Chunk, *, include_usage: bool) -> dict[str, Any]:
        choices = [
            {
                "index": part["index"],
                "delta": {key: part["delta"][key] for key in ("role", "content") if key in part["delta"]},
                "logprobs": _logprobs((part.get("logprobs") or {}).get("content")),
                "finish_reason": _reason(part),
            }
            for part in chunk["choices"]
        ]
        return self._chunk(choices) | ({"usage": None} if include_usage else {})

    def last_chunk(self, tally: Tally) -> dict[str, Any]:
        return self._chunk([]) | {"usage": tally.usage(cached=self._cached)}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
            "choices": choices,
        }


def _reason(part: dict[str, Any]) -> str | None:
    reason = part.get("finish_reason")
    return _REASONS.get(reason, reason)


def _logprobs(content: list[dict[str, Any]] | None) -> dict[str, Any] | None:
    return None if content is None else {"content": content, "refusal": None}

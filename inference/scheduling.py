"""Slots are for prompts: a request needs its adapter while it has prompt positions to compute, and no longer."""

from collections.abc import Callable
from typing import Any

from adapters_store.names import Position


def needs_adapter(*, position: Position, running: bool, computed: int, prompt_length: int) -> bool:
    """Whether a request's next step may touch its adapter.

    A property of state, not an event: preemption sets `running` to False and `computed` to 0, so the adapter comes back
    without anybody restoring it. An all-position adapter keeps its slot for as long as the request lives.
    """
    return position == "all" or not running or computed < prompt_length


class Line:
    """The waiting requests that need an adapter: how long those behind may overtake one that finds no place.

    vLLM goes on to those behind when the slots of a step are other adapters', and whoever shares one of these runs.
    That costs nothing, and a prompt that fits into a step gives its slot back in the next, in which the first in line
    is the first to be asked. But cut prompts and all-position adapters keep their slots, and if requests for those
    never cease, neither does the waiting. So the first in line is overtaken in PATIENCE steps; in the next one nobody
    behind it gets a slot before it does. Each request ages at the head of the line alone: its turn comes, because
    everyone's before it does.
    """

    PATIENCE = 16

    def __init__(self, *, is_running: Callable[[Any], bool]) -> None:
        self._is_running = is_running
        self._step = -1
        self._asked: Any = None
        self._first: Any = None

    def closed(self, step: int) -> bool:
        """Whether the next waiting request may not run in this step, because one before it has waited too long.

        Asked in the queue's order for every request that needs an adapter, before `asked`. Counts in their attribute
        `attune_overtaken` (int, 0 at first) the steps in which they were first in line and others went on.
        """
        if step != self._step:
            self._step, self._asked, self._first = step, None, None
        if self._first is None and self._asked is not None and not self._is_running(self._asked):
            self._first = self._asked
            self._first.attune_overtaken += 1
        return self._first is not None and self._first.attune_overtaken > self.PATIENCE

    def asked(self, request: Any) -> None:
        """This request can run in this step if there is a place for its adapter."""
        if self._first is None:
            self._asked = request

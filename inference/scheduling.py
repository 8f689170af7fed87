"""Slots are for prompts: a request needs its adapter while it has prompt positions to compute, and no longer."""

from adapters_store.names import Position


def needs_adapter(*, position: Position, running: bool, computed: int, prompt_length: int) -> bool:
    """Whether a request's next step may touch its adapter.

    A property of state, not an event: preemption sets `running` to False and `computed` to 0, so the adapter comes back
    without anybody restoring it. An all-position adapter keeps its slot for as long as the request lives.
    """
    return position == "all" or not running or computed < prompt_length

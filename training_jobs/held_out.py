"""Which rows attune-train judges by: whole chats or rows, or the last conversations of one long chat."""

import random
from collections.abc import Sequence

from training_jobs.messages import HELD_OUT_FEWEST, HELD_OUT_LEAST, Conversation, held_out_count


def held_out_choose(talks: Sequence[Conversation], share: float, *, seed: int) -> set[int]:
    """Indices of rows, together no more than the share says; none if that would leave fewer than HELD_OUT_LEAST.

    What has one source (pieces of a chat, pairs that answer one prompt) is on one side. Of fewer than HELD_OUT_FEWEST
    sources it is the longest one's last conversations, up to half of it.
    """
    if not share or len(talks) < HELD_OUT_FEWEST:
        return set()
    rows = _grouped(range(len(talks)), [talk.source for talk in talks])
    room, places = held_out_count(share, len(talks)), held_out_count(share, len(rows))
    if len(rows) >= HELD_OUT_FEWEST:
        order = random.Random(seed).sample(rows, len(rows))
    else:
        longest = max(rows, key=len)
        order = _grouped(longest, [talks[row].whole for row in longest])[::-1]
        room, places = min(room, len(longest) // 2), len(order)
    chosen: set[int] = set()
    for group in order:
        if places and len(group) <= room - len(chosen):
            chosen |= set(group)
            places -= 1
    return chosen if len(chosen) >= HELD_OUT_LEAST else set()


def _grouped(rows: Sequence[int], names: Sequence[str]) -> list[list[int]]:
    groups: dict[str, list[int]] = {}
    for row, name in zip(rows, names, strict=True):
        groups.setdefault(name, []).append(row)
    return list(groups.values())

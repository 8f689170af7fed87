"""Preference pairs (DPO): {"input": {"messages"}, "preferred_output", "non_preferred_output"} a line."""

from typing import Any

from webapp.datasets.conversation import Conversation
from webapp.datasets.faults import FileError

NAME = "preferences"
KEYS = '{"input": {"messages": […]}, "preferred_output": […], "non_preferred_output": […]}'


def fits(row: dict[str, Any]) -> bool:
    return "preferred_output" in row or "non_preferred_output" in row


def parse(row: dict[str, Any]) -> Conversation:
    # Training on the preferred answers alone would be another method under the same name.
    raise FileError(
        "These are preference pairs (DPO), and training on preferences is not available yet. To train on the preferred "
        'answers, write each row as {"messages": […]} with the preferred answer as the last message.',
        code="preferences_not_supported",
    )

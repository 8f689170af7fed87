"""Tool calls and their results as text: the form that Qwen and Hermes use. To a small model they are text like any."""

import json
from typing import Any

from webapp.datasets.faults import RowError


def call_text(where: str, name: str, arguments: Any) -> str:
    """`arguments` as an object whether they came as one or as a string of JSON; raises RowError."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            raise RowError(f"{where}.arguments", "not JSON", "Write the arguments as JSON.") from None
    said = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
    return f"<tool_call>\n{said}\n</tool_call>"


def result_text(content: str | None) -> str:
    return f"<tool_response>\n{content}\n</tool_response>"

"""What was found about a trained adapter, in plain words: from the job's report and the gate's part of it."""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple


class Finding(NamedTuple):
    """`kind`: how to show it; plain if empty."""

    text: str
    kind: Literal["", "warn"] = ""


def findings(report: dict[str, Any]) -> list[Finding]:
    """`report`: of a job, empty until its training has ended."""
    return [*_warnings(report), *_compared(report), *_on_the_engine(report)]


def _warnings(report: dict[str, Any]) -> Iterator[Finding]:
    for warning in report.get("gate", {}).get("warnings", []):
        yield Finding(warning["message"], "warn")


def _compared(report: dict[str, Any]) -> Iterator[Finding]:
    """Every figure comes from words that training never saw. Lower losses are better, and higher accuracies."""
    base, memory = report.get("against_base"), report.get("against_memory")
    if base and "pairs" in base:
        yield Finding(
            f"Measured on {base['pairs']} pairs of answers that it never saw: it finds the better answer likelier in "
            f"{base['adapter_accuracy']:.0%} of them, the base model in {base['accuracy']:.0%}. "
            f"{_preference_verdict(base)}"
        )
    elif base:
        yield Finding(
            f"Measured on {base['tokens']:,} tokens of {base['conversations']} conversations that it never saw: a loss "
            f"of {base['adapter_loss']:.2f} instead of the base model's {base['loss']:.2f}. {_verdict(base)}"
        )
    if memory and "pairs" in memory:
        yield Finding(
            f"For comparison, the base model was told {memory['quoted']} of your conversations in a system prompt "
            f"({memory['prompt_tokens']:,} tokens) and was right in {memory['accuracy']:.0%} of {memory['pairs']} "
            f"pairs, where the adapter is in {memory['adapter_accuracy']:.0%}. {_preference_verdict(memory)}"
        )
    elif memory:
        yield Finding(
            f"For comparison, the base model was told {memory['quoted']} of your conversations in a system prompt "
            f"({memory['prompt_tokens']:,} tokens) and had a loss of {memory['loss']:.2f} where the adapter has "
            f"{memory['adapter_loss']:.2f}. {_verdict(memory)}"
        )


def _verdict(comparison: dict[str, Any]) -> str:
    low, high = comparison["low"], comparison["high"]
    if high < 0:
        return f"The adapter is better: 95 % sure, by {-high:.2f} to {-low:.2f}."
    if low > 0:
        return f"The adapter is worse: 95 % sure, by {low:.2f} to {high:.2f}."
    return f"That is no clear difference: 95 % sure, between {-low:.2f} better and {high:.2f} worse."


def _preference_verdict(comparison: dict[str, Any]) -> str:
    low, high = comparison["low"], comparison["high"]
    if low > 0:
        return f"The adapter is better: 95 % sure, by {low:.0%} to {high:.0%} of them."
    if high < 0:
        return f"The adapter is worse: 95 % sure, by {-high:.0%} to {-low:.0%} of them."
    return f"That is no clear difference: 95 % sure, between {-low:.0%} worse and {high:.0%} better."


def _on_the_engine(report: dict[str, Any]) -> Iterator[Finding]:
    if figures := report.get("gate", {}).get("engine"):
        yield Finding(
            f"Tried on the engine with {figures['prompts']} prompts: the adapter changes what it says, by "
            f"{figures['effect']:.2g} at most. Trainer and engine are {figures['difference']:.1g} apart over "
            f"{figures['tokens']} tokens, where {figures['allowed']:.1g} is allowed (without the adapter: "
            f"{figures['base_difference']:.1g})."
        )

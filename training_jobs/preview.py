"""Exactly what a training would see: how many tokens, and of the first examples which are prompt, which are learned."""

from collections.abc import Iterator
from itertools import islice

from transformers import PreTrainedTokenizerBase

from training_jobs.examples import Examples

_SHOWN = 3


def preview(examples: Examples, tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
    """Lines to print. They quote what was written: for the eyes of its owner. A preference pair is two answers."""
    pairs = examples.rows_each == 2
    for name, part in (("to learn from", examples.train), ("to judge by", examples.held_out)):
        yield (
            f"{len(part):,} answers {name}: {part.tokens:,} tokens, of which {part.target_tokens:,} are answers and "
            f"{part.tokens - part.target_tokens:,} are prompts."
        )
    for number, example in enumerate(islice(examples.train, _SHOWN * examples.rows_each)):
        prompt, target = example.tokens[: example.prompt_length], example.tokens[example.prompt_length :]
        use = "learned" if not pairs else ("preferred", "rejected")[number % 2]
        yield f"\nAnswer {number + 1}: a prompt of {len(prompt)} tokens,"
        yield from (f"    {line}" for line in tokenizer.decode(prompt).split("\n"))
        yield f"and {len(target)} tokens that are {use}, each in quotes:"
        yield f"    {' '.join(repr(tokenizer.decode([token])) for token in target)}"

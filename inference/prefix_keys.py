"""What makes two KV blocks of equal tokens different: who adapted them, and how many of their tokens.

KV at an adapted position depends on the adapter. KV of a generated token was computed without it, but on top of an
adapted prefix, so it is neither the base model's nor what the same token would have as part of a prompt. For a
prefill-only adapter the key therefore holds its name (the digest, and the tenant where there is one) and the number of
adapted tokens in the block. The path is not part of it: a name never changes meaning, a path may (cache eviction).

The count is taken from positions alone. The scheduler's own notion of phase is of no use here: the first sampled token
can complete a block before the scheduler has noticed that the prompt is done, and by phase alone prompts of 40 and 50
tokens over the same 64 tokens would share their second block.
"""

from adapters_store.preft.positions import adapted_count


def prefill_key(name: str, start: int, end: int, prompt_length: int) -> tuple[str, str, int]:
    """The key of the block of positions start..end-1, in the shape of vLLM's own ("lora", name, …)."""
    return ("lora", name, adapted_count(start, end, prompt_length))

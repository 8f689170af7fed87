"""What a training will take of memory beside the loaded base, estimated before its first step.

Counted are the tensors that autograd keeps of a Llama-shaped decoder layer with frozen weights, the logits of the
scored positions, and the adapter with its optimiser. docs/training.md has how near that comes to what was measured.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from peft import PeftModel

from training_jobs.errors import JobFault, PassingFault, UserFault
from training_jobs.examples import Example
from training_jobs.free_memory import Memory, gigabytes

_LAYER = re.compile(r"\.layers\.(\d+)\.")
#: What torch takes for itself when a first training begins: kernels' workspaces, buffers of a pass.
_BEGIN = 80_000_000
#: What is resident for each byte that is kept: tensors that are freed between kept ones leave holes, and LoRA frees one
#: after each projection. As measured on a CPU.
_HOLES, _HOLES_LORA = 1.3, 1.5
#: Bytes for each trained parameter (float32): gradient, AdamW's two moments, the best epoch's weights.
_TRAINED = 16
#: Copies of the scored logits that are there at once: as computed, as kept, log-softmax, gradients; without gradients.
_LOGITS, _LOGITS_SCORED = 4, 3


@dataclass(frozen=True)
class Footprint:
    """Bytes: whatever the batch, for each row that is trained at once, and for each that is scored at once."""

    fixed: int
    trained_row: int
    scored_row: int

    def of(self, *, trained: int, scored: int) -> int:
        """The peak with so many rows at once."""
        return self.fixed + max(trained * self.trained_row, scored * self.scored_row)


def footprint(
    model: PeftModel, *, trained: Sequence[Example], scored: Sequence[Example], checkpointing: bool
) -> Footprint:
    """Of `model` with its adapter attached. `checkpointing`: of a layer only its input is kept for the way back."""
    config = model.config.get_text_config()
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    base_bytes = model.dtype.itemsize
    width, inner = config.hidden_size, config.intermediate_size
    head = getattr(config, "head_dim", None) or width // config.num_attention_heads
    attended = head * (2 * config.num_attention_heads + 2 * config.num_key_value_heads)
    # The residual stream twice (float32 where it is normalised), queries, keys, values and what attention says, the
    # three products of the gated projection; then what the adapter's own matrices read.
    of_base = 4 * 2 * width + base_bytes * (attended + 3 * inner)
    lora = model.active_peft_config.peft_type.endswith("LORA")
    of_adapter = 4 * (2 * width + inner if lora else 2 * width)
    holes = _HOLES_LORA if lora else _HOLES
    per_token = round((of_base + of_adapter) * holes)
    adapted = _adapted_layers(model)
    # Nothing is kept below the first adapted layer: no gradient goes there.
    passed = config.num_hidden_layers - min(adapted)
    if checkpointing:
        kept = passed * base_bytes * width + per_token
    else:
        kept = round((passed * of_base + len(adapted) * of_adapter) * holes)

    def row(examples: Sequence[Example], tokens_take: int, logits: int) -> int:
        """Of the longest one, as it is padded to, and the longest target."""
        if not examples:
            return 0
        longest = max(len(example.tokens) for example in examples)
        target = max(example.target_length for example in examples) + 1
        return longest * tokens_take + target * config.vocab_size * 4 * logits

    return Footprint(
        fixed=_BEGIN + _TRAINED * sum(parameter.numel() for parameter in parameters),
        trained_row=row(trained, kept, _LOGITS),
        scored_row=row(scored, per_token, _LOGITS_SCORED),
    )


def _adapted_layers(model: PeftModel) -> set[int]:
    """From the names of what is trained, as adapters_store.sites reads them from a folder."""
    names = (name for name, parameter in model.named_parameters() if parameter.requires_grad)
    return {int(found[1]) for found in map(_LAYER.search, names) if found}


def parts_that_fit(need: Footprint, memory: Memory | None, *, batch_size: int, scored_at_once: int) -> int:
    """In how many parts a batch is to be computed: the fewest that fit into the free memory; 1 where nothing is known.

    Raises a JobFault (needs_more_memory) when a row at a time is too much: for good if this machine never has as much.
    """
    if memory is None:
        return 1
    for parts in range(1, max(batch_size, scored_at_once) + 1):
        if need.of(trained=ceil(batch_size / parts), scored=max(1, scored_at_once // parts)) <= memory.free:
            return parts
    raise _too_much(need.of(trained=1, scored=1), memory)


def _too_much(needed: int, memory: Memory) -> JobFault:
    if needed <= memory.total:
        return PassingFault(
            "needs_more_memory",
            f"Training needs about {gigabytes(needed)} of memory even one row at a time, and the trainer has "
            f"{gigabytes(memory.free)} free at the moment, of {gigabytes(memory.total)}.",
        )
    return UserFault(
        "needs_more_memory",
        f"Training needs about {gigabytes(needed)} of memory even one row at a time, and the trainer has "
        f"{gigabytes(memory.total)}. Split long conversations, or choose a smaller base model.",
    )

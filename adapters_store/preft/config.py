"""The conventions of each method: where it acts, and the scale that its formula carries."""

from typing import Literal, get_args

from adapters_store.names import Method

#: A projection by the name that PEFT takes for a target module.
TargetModule = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TARGET_MODULES: tuple[TargetModule, ...] = get_args(TargetModule)

#: The seven projections of a Llama-shaped layer; LoRA's default sites (paper appendix A.1).
PROJECTIONS = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)

#: How `scale` is to be read; stored with every adapter so that a number never changes meaning.
CONVENTION: dict[Method, str] = {
    "lora": "f(x) + scale*B*A*x, scale = alpha/rank",
    "direft": "h + scale*B*(A*h + b), scale = 1/sqrt(rank), after every decoder layer",
    "loreft": "h + scale*Rt*(W*h + b - R*h), scale = 1/sqrt(rank), after every decoder layer",
}

DEFAULT_ALPHA = 32.0


def scale_of(method: Method, rank: int, *, alpha: float = DEFAULT_ALPHA) -> float:
    """The scale of a method at a rank: alpha/rank for lora, 1/sqrt(rank) for the representation methods."""
    return alpha / rank if method == "lora" else rank**-0.5

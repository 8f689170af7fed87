"""DiReFT and LoReFT as one more LoRA site: the residual stream after every decoder layer.

Both add s·Bᵀ(A·h + b) to the residual stream h (paper appendix A.2; LoReFT with A = W − R and B = R). That is a LoRA of
the identity with a bias in the middle, so a decoder layer gets a submodule named SITE whose output is its input, and
vLLM's own machinery does the rest: slots, paging, eviction, graphs.

The bias travels as one more column of A ([r, d+1]), so that an adapter stays a plain pair of matrices for vLLM.
"""

from typing import Any

import torch
from torch import nn

SITE = "residual_stream"


class ResidualStream(nn.Module):
    """What a decoder layer's output passes through: vLLM carries the stream as hidden + residual, not yet added."""

    def __init__(self, width: int, device: torch.device) -> None:
        super().__init__()
        self.width = width
        self.device = device

    def forward(self, hidden: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        return hidden


class ResidualSlots:
    """The slots of one site; mixed with vLLM's base class of adapted layers by compat."""

    base_layer: ResidualStream
    device: torch.device
    punica_wrapper: Any

    def create_lora_weights(self, max_loras: int, lora_config: Any, model_config: Any = None) -> None:
        width, rank = self.base_layer.width, lora_config.max_lora_rank
        options = {"dtype": lora_config.lora_dtype, "device": self.device}
        self.lora_a_stacked = (torch.zeros(max_loras, 1, rank, width, **options),)
        self.lora_b_stacked = (torch.zeros(max_loras, 1, width, rank, **options),)
        # One row more than there are slots: GPU kernels take it for tokens without an adapter. It stays zero.
        self.bias_stacked = torch.zeros(max_loras + 1, rank, **options)

    def reset_lora(self, index: int) -> None:
        self.lora_a_stacked[0][index] = 0
        self.lora_b_stacked[0][index] = 0
        self.bias_stacked[index] = 0

    def set_lora(self, index: int, lora_a: torch.Tensor, lora_b: torch.Tensor) -> None:
        """lora_a [r, d+1] (the last column is the bias) or [r, d] (no bias), lora_b [d, r] with the scale in it."""
        self.reset_lora(index)
        width, rank = self.base_layer.width, lora_a.shape[0]
        self.lora_a_stacked[0][index, 0, :rank].copy_(lora_a[:, :width], non_blocking=True)
        self.lora_b_stacked[0][index, 0, :, :rank].copy_(lora_b, non_blocking=True)
        if lora_a.shape[1] > width:
            self.bias_stacked[index, :rank].copy_(lora_a[:, width], non_blocking=True)

    def forward(self, hidden: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Adds in place to hidden [tokens, d]; residual [tokens, d] is read only."""
        self.punica_wrapper.add_residual(
            hidden, residual, self.lora_a_stacked[0], self.lora_b_stacked[0], self.bias_stacked
        )
        return hidden


class PassesStream:
    """Mixed in front of a decoder layer's class: hands what the layer returns to its SITE."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        hidden, residual = super().forward(*args, **kwargs)  # type: ignore[misc]
        return getattr(self, SITE)(hidden, residual), residual


def add_sites(layers: nn.ModuleList, *, layer_type: type[nn.Module], width: int, device: torch.device) -> int:
    """Give every decoder layer of the class that the version's table names its SITE; returns how many got one.

    The layer keeps its identity and weights; only its class becomes a subclass with PassesStream in front.
    """
    adapted_type = type(f"Adapted{layer_type.__name__}", (PassesStream, layer_type), {})
    count = 0
    for layer in layers:
        if type(layer) is layer_type:
            layer.add_module(SITE, ResidualStream(width, device))
            layer.__class__ = adapted_type
            count += 1
    return count

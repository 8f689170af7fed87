"""Prefill-only LoRA: f(x) + scale*B*A*x on the prompt's positions, f(x) elsewhere (paper section 3, appendix A.1)."""

from dataclasses import dataclass
from typing import Any

import torch
from peft import LoraConfig, LoraModel
from peft.tuners.lora.layer import LoraLayer, LoraVariant
from torch import nn
from torch.utils.hooks import RemovableHandle

from adapters_store.preft.lora import lora_delta
from training_jobs.attach.chosen import Choice, OneAdapter
from training_jobs.attach.register import register
from training_jobs.attach.routing import LayerSlot, PrefillRouting, cannot_merge, layer_routes


@dataclass
class PreftLoraConfig(LoraConfig):
    """A LoraConfig whose adapter acts on the prompt alone. Plain LoRA only: no DoRA, no trained biases."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = PREFT_LORA
        if self.use_dora or self.bias != "none" or self.lora_bias or self.alora_invocation_tokens:
            raise ValueError(
                "Prefill-only LoRA is plain LoRA: use_dora, bias, lora_bias and aLoRA do not apply."
            )

    @property
    def position(self) -> str:
        return "prefill"


class PrefillVariant(LoraVariant):
    """The forward of one linear layer's LoRA, gated by the mask in `slot`, of the adapters that rows have there."""

    def __init__(self, slot: LayerSlot) -> None:
        self._slot = slot

    @staticmethod
    def init(module: LoraLayer, adapter_name: str, **kwargs: Any) -> None:
        """Nothing beyond LoRA's own."""

    def forward(
        self, module: LoraLayer, active_adapter: str, x: torch.Tensor, result: torch.Tensor, **kwargs: Any
    ) -> torch.Tensor:
        """x [B, T, in], result [B, T, out]. The gate rides on the scale, so it costs no pass of its own."""
        chosen: Choice = self._slot.rows or OneAdapter(active_adapter)
        a, b = (chosen.of_rows(chosen.weights(factor)) for factor in (module.lora_A, module.lora_B))
        x = module.lora_dropout[active_adapter](x.to(a.dtype))
        scale = self._slot.mask.unsqueeze(-1).to(a.dtype) * module.scaling[active_adapter]
        return result + lora_delta(x, a, b, scale)

    def supports_lora_conversion(self) -> bool:
        return False

    merge_safe = merge_unsafe = unmerge = staticmethod(cannot_merge)


class PreftLoraModel(PrefillRouting, LoraModel):
    """PEFT's LoRA tuner with the prefill variant in every layer."""

    def _pre_injection_hook(self, model: nn.Module, config: PreftLoraConfig, adapter_name: str) -> None:
        super()._pre_injection_hook(model, config, adapter_name)
        if not hasattr(self, "_slot"):
            self._slot = LayerSlot()

    def _create_and_replace(
        self,
        config: Any,
        adapter_name: str,
        target: Any,
        target_name: str,
        parent: nn.Module,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super()._create_and_replace(config, adapter_name, target, target_name, parent, *args, **kwargs)
        getattr(parent, target_name).lora_variant[adapter_name] = PrefillVariant(self._slot)

    def _layer_routes(self) -> list[RemovableHandle]:
        return layer_routes(self.model, self._slot)


PREFT_LORA = register("PREFT_LORA", config=PreftLoraConfig, model=PreftLoraModel, prefix="lora_")

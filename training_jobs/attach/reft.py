"""DiReFT and LoReFT: low-rank edits of the residual stream after every decoder layer (paper appendices A.2, C)."""

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from peft import PeftConfig
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from torch.utils.hooks import RemovableHandle
from transformers.modeling_layers import GradientCheckpointingLayer

from adapters_store.preft.config import scale_of
from adapters_store.preft.orthonormal import orthonormal_rows
from adapters_store.preft.reft import direft_delta, loreft_delta
from training_jobs.attach.chosen import ROWS, Choice, OneAdapter, RowAdapters
from training_jobs.attach.prompt_mask import PromptEndUnknown
from training_jobs.attach.register import register
from training_jobs.attach.routing import MASK, PrefillRouting, cannot_merge


@dataclass
class ReftConfig(PeftConfig):
    """`r`: rank; `position`: "prefill" or "all"; `target_modules`: decoder layers, as PEFT matches names."""

    r: int = 8
    position: Literal["prefill", "all"] = "prefill"
    target_modules: list[str] | str | None = field(default=r".*\.layers\.\d+")
    exclude_modules: list[str] | str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.position not in ("prefill", "all"):
            raise ValueError('A ReFT adapter\'s position is "prefill" or "all".')


@dataclass
class DireftConfig(ReftConfig):
    """`init`: which factor starts at zero. "B": A has orthonormal rows (appendix A.2); "A": B has (appendix C.1)."""

    init: Literal["B", "A"] = "B"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = DIREFT


@dataclass
class LoreftConfig(ReftConfig):
    def __post_init__(self) -> None:
        super().__post_init__()
        self.peft_type = LOREFT


class ReftLayer(nn.Module, BaseTunerLayer):
    """A decoder layer with an edit of its output. Subclasses own the parameters and the formula."""

    other_param_names = ("scale", "position")

    def __init__(self, base_layer: nn.Module, width: int) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.width = width
        self.scale: dict[str, float] = {}
        self.position: dict[str, str] = {}
        self._disable_adapters = False
        self.merged_adapters = []

    def update_layer(self, adapter_name: str, config: Any) -> None:
        """Create one adapter's parameters, float32 on the base layer's device (a bfloat16 start is not orthonormal)."""
        if config.r > self.width:
            raise ValueError(
                f"Rank {config.r} is more than the model's width of {self.width}. Choose a lower rank."
            )
        self.scale[adapter_name] = scale_of("direft", config.r)
        self.position[adapter_name] = config.position
        self._create(adapter_name, config)
        device = next(self.base_layer.parameters()).device
        for modules in (getattr(self, name) for name in self.adapter_layer_names):
            modules[adapter_name].to(device)
        self.set_adapter(self.active_adapters, inference_mode=config.inference_mode)

    def _create(self, adapter_name: str, config: Any) -> None:
        raise NotImplementedError

    def _delta(self, chosen: Choice, hidden: torch.Tensor, scale: float | torch.Tensor) -> torch.Tensor:
        """hidden [B, T, d] in the adapters' dtype; scale a number or [B, T, 1]; returns [B, T, d]."""
        raise NotImplementedError

    def forward(self, hidden: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """As the decoder layer's, which also takes `prompt_mask` [B, T] bool and `row_adapters`."""
        mask: torch.Tensor | None = kwargs.pop(MASK, None)
        rows: RowAdapters | None = kwargs.pop(ROWS, None)
        output = self.base_layer(hidden, *args, **kwargs)
        if self.disable_adapters:
            return output
        hidden = output[0] if isinstance(output, tuple) else output
        choices = [OneAdapter(name) for name in self.active_adapters if name in self.scale]
        for chosen in choices if rows is None else [rows]:
            hidden = hidden + self._gated_delta(chosen, hidden, mask).to(hidden.dtype)
        return (hidden, *output[1:]) if isinstance(output, tuple) else hidden

    def _gated_delta(self, chosen: Choice, hidden: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        """The gate rides on the scale, so it costs no pass of its own. Adapters of one batch are of one recipe."""
        name = chosen.name if isinstance(chosen, OneAdapter) else chosen.names[0]
        dtype = next(getattr(self, self.adapter_layer_names[0])[name].parameters()).dtype
        scale: float | torch.Tensor = self.scale[name]
        if self.position[name] == "prefill":
            if mask is None:
                raise PromptEndUnknown
            scale = mask.unsqueeze(-1).to(dtype) * scale
        return self._delta(chosen, hidden.to(dtype), scale)

    merge = unmerge = cannot_merge

    def supports_lora_conversion(self, adapter_name: str = "default") -> bool:
        return False

    def __getattr__(self, name: str) -> Any:
        """Models read attributes of their decoder layers (`attention_type`): those are the base layer's."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "base_layer":
                raise
            return getattr(super().__getattr__("base_layer"), name)


class DireftLayer(ReftLayer):
    """h + scale*B*(A*h + b). A [r, d], b [r], B [d, r]."""

    adapter_layer_names = ("direft_A", "direft_B")

    def __init__(self, base_layer: nn.Module, width: int) -> None:
        super().__init__(base_layer, width)
        self.direft_A, self.direft_B = nn.ModuleDict(), nn.ModuleDict()

    def _create(self, adapter_name: str, config: DireftConfig) -> None:
        a, b = nn.Linear(self.width, config.r), nn.Linear(config.r, self.width, bias=False)
        nn.init.zeros_(a.bias)
        zero, orthonormal = (b, a) if config.init == "B" else (a, b)
        nn.init.zeros_(zero.weight)
        nn.init.orthogonal_(orthonormal.weight)
        self.direft_A[adapter_name], self.direft_B[adapter_name] = a, b

    def _delta(self, chosen: Choice, hidden: torch.Tensor, scale: float | torch.Tensor) -> torch.Tensor:
        a, bias = chosen.weights(self.direft_A), chosen.biases(self.direft_A)
        b = chosen.weights(self.direft_B)
        return direft_delta(hidden, *map(chosen.of_rows, (a, bias, b)), scale)


class LoreftLayer(ReftLayer):
    """h + scale*Rt*(W*h + b - R*h). W [r, d], b [r]; R [r, d] is orthonormal_rows of the parameter loreft_R."""

    adapter_layer_names = ("loreft_R", "loreft_W")

    def __init__(self, base_layer: nn.Module, width: int) -> None:
        super().__init__(base_layer, width)
        self.loreft_R, self.loreft_W = nn.ModuleDict(), nn.ModuleDict()

    def _create(self, adapter_name: str, config: LoreftConfig) -> None:
        r, w = nn.Linear(self.width, config.r, bias=False), nn.Linear(self.width, config.r)
        nn.init.orthogonal_(r.weight)
        nn.init.zeros_(w.bias)
        with torch.no_grad():
            w.weight.copy_(orthonormal_rows(r.weight))
        self.loreft_R[adapter_name], self.loreft_W[adapter_name] = r, w

    def _delta(self, chosen: Choice, hidden: torch.Tensor, scale: float | torch.Tensor) -> torch.Tensor:
        """R is made orthonormal once an adapter, not once a row."""
        r = orthonormal_rows(chosen.weights(self.loreft_R))
        w, bias = chosen.weights(self.loreft_W), chosen.biases(self.loreft_W)
        return loreft_delta(hidden, *map(chosen.of_rows, (r, w, bias)), scale)


class ReftModel(PrefillRouting):
    """The tuner of both methods: wraps every targeted decoder layer."""

    tuner_layer_cls: type[ReftLayer]
    target_module_mapping: dict[str, list[str]] = {}

    def _layer_routes(self) -> list[RemovableHandle]:
        """Decoder layers that are not adapted, and those inside of adapted ones, do not know our keywords."""
        return [
            module.register_forward_pre_hook(_drop, with_kwargs=True)
            for module in self.model.modules()
            if isinstance(module, GradientCheckpointingLayer)
        ]

    def _create_and_replace(
        self,
        config: Any,
        adapter_name: str,
        target: nn.Module,
        target_name: str,
        parent: nn.Module,
        current_key: str,
        **kwargs: Any,
    ) -> None:
        if isinstance(target, ReftLayer):
            target.update_layer(adapter_name, config)
            return
        layer = self.tuner_layer_cls(target, self.get_model_config(self.model)["hidden_size"])
        layer.set_adapter(adapter_name)
        layer.update_layer(adapter_name, config)
        if adapter_name not in self.active_adapters:
            layer.requires_grad_(False)
        self._replace_module(parent, target_name, layer, target)

    def _replace_module(
        self, parent: nn.Module, child_name: str, new_module: nn.Module, child: nn.Module
    ) -> None:
        """PEFT's own expects layers with a `weight`."""
        setattr(parent, child_name, new_module)


def _drop(layer: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    return args, {name: value for name, value in kwargs.items() if name not in (MASK, ROWS)}


class DireftModel(ReftModel):
    prefix, tuner_layer_cls = "direft_", DireftLayer


class LoreftModel(ReftModel):
    prefix, tuner_layer_cls = "loreft_", LoreftLayer


DIREFT = register("DIREFT", config=DireftConfig, model=DireftModel, prefix="direft_")
LOREFT = register("LOREFT", config=LoreftConfig, model=LoreftModel, prefix="loreft_")

"""Brings the prompt mask, and which adapter a row has, to the layers that adapt, as keyword arguments of the forward.

A keyword argument is the one carrier that gradient checkpointing replays exactly: a checkpointed layer captures its
keywords, while a global "last mask" belongs to whatever batch ran last.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch
from peft.tuners.tuners_utils import BaseTuner
from torch import nn
from torch.utils.hooks import RemovableHandle
from transformers.modeling_layers import GradientCheckpointingLayer

from training_jobs.attach.chosen import ROWS, RowAdapters
from training_jobs.attach.prompt_mask import PromptEndUnknown, generating, mask_from_labels, mask_of_generate

MASK = "prompt_mask"


class PrefillRouting(BaseTuner):
    """A tuner whose adapters with `position="prefill"` act on the prompt alone.

    The forward of the adapted model takes `prompt_mask` [B, T] bool beside the model's own arguments; without it
    the mask comes from `labels`, or from the generate() that is running. Where there is neither, adapters that need
    the mask raise PromptEndUnknown, in training and in evaluation alike.

    With `row_adapters` (RowAdapters) each row goes through its own adapter instead of the active one.
    """

    _routes: list[RemovableHandle]

    def _post_injection_hook(self, model: nn.Module, config: Any, adapter_name: str) -> None:
        super()._post_injection_hook(model, config, adapter_name)
        if config.position == "prefill" and not getattr(self, "_routes", None):
            self._routes = [
                model.register_forward_pre_hook(_find_mask, with_kwargs=True),
                *self._layer_routes(),
            ]

    def _layer_routes(self) -> list[RemovableHandle]:
        """Hooks that hand the mask on inside the decoder layers, for methods that adapt there."""
        return []

    def generate(self, *args: Any, **kwargs: Any) -> Any:
        """The base model's generate(), with the prompt's length on record."""
        with generating(_tokens(args, kwargs)):
            return self.model.generate(*args, **kwargs)

    @contextmanager
    def _enable_peft_forward_hooks(self, *args: Any, **kwargs: Any) -> Iterator[None]:
        """PEFT calls this around every forward."""
        if kwargs.get("adapter_names") is not None:
            raise ValueError(
                "Prefill-only and ReFT adapters cannot be mixed in one batch with `adapter_names`: use `row_adapters`."
            )
        yield

    def merge_adapter(self, *args: Any, **kwargs: Any) -> NoReturn:
        cannot_merge()

    def _unload_and_optionally_merge(self, merge: bool = True, **kwargs: Any) -> nn.Module:
        if merge:
            cannot_merge()
        for route in getattr(self, "_routes", []):
            route.remove()
        return super()._unload_and_optionally_merge(merge=False, **kwargs)


def prefill_only(model: nn.Module) -> bool:
    """Whether the active adapter acts on the prompt alone. All-position LoRA has PEFT's own configuration."""
    return getattr(getattr(model, "active_peft_config", None), "position", "all") == "prefill"


def layer_routes(model: nn.Module, slot: "LayerSlot") -> list[RemovableHandle]:
    """Hooks on every decoder layer that put what it is told into `slot` while it runs.

    They sit on the checkpointed module itself, so a recompute in the backward pass runs them again with the same
    captured keyword.
    """
    handles = []
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            handles.append(module.register_forward_pre_hook(slot.fill, with_kwargs=True))
            handles.append(module.register_forward_hook(slot.empty, always_call=True))
    return handles


class LayerSlot:
    """What the decoder layer that is running now was told: its mask, [B, T] bool, and its rows' adapters, if each has
    its own."""

    def __init__(self) -> None:
        self._mask: torch.Tensor | None = None
        self.rows: RowAdapters | None = None

    @property
    def mask(self) -> torch.Tensor:
        if self._mask is None:
            raise PromptEndUnknown
        return self._mask

    def fill(self, layer: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        self._mask, self.rows = kwargs.pop(MASK, None), kwargs.pop(ROWS, None)
        return args, kwargs

    def empty(self, layer: nn.Module, args: Any, output: Any) -> None:
        self._mask = self.rows = None


def cannot_merge(*args: Any, **kwargs: Any) -> NoReturn:
    """Merged weights would act on every token; ReFT has no weight to merge into."""
    raise NotImplementedError(
        "This adapter cannot be merged into the base model's weights: merged weights act on generated tokens too. "
        "Serve it as an adapter instead."
    )


def _tokens(args: Any, kwargs: dict[str, Any]) -> int:
    """How many there are in a row of the inputs, by whichever name they come. Raises PromptEndUnknown if by none."""
    named = (kwargs.get(name) for name in ("input_ids", "inputs", "inputs_embeds"))
    inputs = next((each for each in (*named, *args[:1]) if each is not None), None)
    if inputs is None:
        raise PromptEndUnknown
    return int(inputs.shape[1])


def _find_mask(model: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Pre-hook of the causal language model: turn what is known into `prompt_mask`; absent if nothing is."""
    if kwargs.get(MASK) is None:
        cache = kwargs.get("past_key_values")
        past = 0 if cache is None else cache.get_seq_length()
        labels = kwargs.get("labels")
        if labels is not None and past == 0:
            mask = mask_from_labels(labels, kwargs.get("position_ids"))
        else:
            mask = mask_of_generate(past=past, tokens=_tokens(args, kwargs))
        if mask is None:
            return args, kwargs
        kwargs = {**kwargs, MASK: mask}
    inputs_device = next(model.parameters()).device
    return args, {**kwargs, MASK: kwargs[MASK].to(inputs_device)}

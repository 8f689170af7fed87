"""From a recipe to an attached adapter, from an attached adapter to its folder, and back."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model
from peft.utils import set_peft_model_state_dict
from transformers import PreTrainedModel

from adapters_store.attached import tensors_get
from adapters_store.manifest import BaseRef, Manifest
from adapters_store.preft.config import PROJECTIONS, TARGET_MODULES, scale_of
from adapters_store.sites import sites_of
from adapters_store.weights import adapter_read, adapter_write
from training_jobs.attach.lora import PreftLoraConfig
from training_jobs.attach.reft import DireftConfig, LoreftConfig
from training_jobs.messages import Recipe


def peft_config(recipe: Recipe) -> PeftConfig:
    """The PEFT configuration of a recipe; all-position LoRA is PEFT's own."""
    if recipe.method == "lora":
        kind = LoraConfig if recipe.position == "all" else PreftLoraConfig
        chosen = recipe.target_modules or TARGET_MODULES
        targets = [site for site in PROJECTIONS if site.rpartition(".")[2] in chosen]
        return kind(r=recipe.rank, lora_alpha=recipe.alpha, target_modules=targets, task_type="CAUSAL_LM")
    kind = DireftConfig if recipe.method == "direft" else LoreftConfig
    return kind(r=recipe.rank, position=recipe.position, task_type="CAUSAL_LM")


def adapter_attach(model: PreTrainedModel, recipe: Recipe, *, seed: int) -> PeftModel:
    """A fresh adapter on `model`, float32 whatever the base's dtype, that changes nothing yet (appendix A.2).

    Raises ValueError if the rank does not fit the model.
    """
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return get_peft_model(model, peft_config(recipe))


def adapters_attach(model: PreTrainedModel, recipe: Recipe, *, seeds: Mapping[str, int]) -> PeftModel:
    """Adapters of one recipe to be trained together, a name and seed each: all trainable, the first one active.

    Each is what adapter_attach makes of its seed. Raises ValueError as it does.
    """
    (first, seed), *others = seeds.items()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        attached = get_peft_model(model, peft_config(recipe), adapter_name=first)
        for name, seed in others:
            torch.manual_seed(seed)
            attached.add_adapter(name, peft_config(recipe))
    for name, parameter in attached.named_parameters():
        if not seeds.keys().isdisjoint(name.split(".")):
            parameter.requires_grad_(True)
    return attached


def adapter_detach(model: PeftModel) -> PreTrainedModel:
    """The base model as it was before, for the next adapter; if there are several on it, they all go."""
    base = model.unload()
    base.__dict__.pop("forward", None)  # TRL patches the instance, again for every trainer
    base.gradient_checkpointing_disable()
    base.disable_input_require_grads()
    base.requires_grad_(False)
    return base.eval()


def adapter_load(model: PreTrainedModel, folder: Path) -> tuple[PeftModel, Manifest]:
    """Attach the adapter in `folder`, verified; its configuration is rebuilt from the manifest, never from the file.

    Raises AdapterError if the folder is not a whole adapter; RuntimeError if its shapes are another base's.
    """
    manifest, arrays = adapter_read(folder)
    of_lora: dict[str, Any] = {}
    if manifest.method == "lora":
        modules = tuple({site.target_module for site in sites_of(manifest)})
        of_lora = {"alpha": manifest.scale * manifest.rank, "target_modules": modules}
    recipe = Recipe(method=manifest.method, position=manifest.position, rank=manifest.rank, **of_lora)
    attached = adapter_attach(model, recipe, seed=0)
    tensors_set(attached, {name: torch.from_numpy(array) for name, array in arrays.items()})
    return attached, manifest


def adapter_save(
    model: PeftModel, folder: Path, *, recipe: Recipe, base: BaseRef, training: dict[str, Any]
) -> Manifest:
    """Write the attached adapter to `folder` (docs/adapter-format.md) and return its manifest."""
    config = model.active_peft_config.to_dict()
    config |= {"base_model_name_or_path": base.name, "inference_mode": True}
    return adapter_write(
        folder,
        tensors={name: tensor.numpy() for name, tensor in tensors_get(model).items()},
        config={key: sorted(value) if isinstance(value, set) else value for key, value in config.items()},
        base=base,
        method=recipe.method,
        position=recipe.position,
        rank=recipe.rank,
        scale=scale_of(recipe.method, recipe.rank, alpha=recipe.alpha),
        training=training,
    )


def tensors_set(model: PeftModel, tensors: dict[str, torch.Tensor]) -> None:
    """Put tensors into the attached adapter; every one of them, and no others. Raises ValueError."""
    result = set_peft_model_state_dict(model, tensors)
    missing = [
        name for name in result.missing_keys if any(part in name for part in ("lora_", "direft_", "loreft_"))
    ]
    if missing or result.unexpected_keys:
        raise ValueError("The tensors are not those of this adapter on this base model.")

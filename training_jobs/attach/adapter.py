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
        return kind(
            r=recipe.rank,
            lora_alpha=recipe.alpha,
            target_modules=targets,
            layers_to_transform=None if recipe.layers is None else list(recipe.layers),
            task_type="CAUSAL_LM",
        )
    kind = DireftConfig if recipe.method == "direft" else LoreftConfig
    layers = (
        {} if recipe.layers is None else {"target_modules": [f"layers.{layer}" for layer in recipe.layers]}
    )
    return kind(r=recipe.rank, position=recipe.position, task_type="CAUSAL_LM", **layers)


def adapter_attach(model: PreTrainedModel, recipe: Recipe, *, seed: int) -> PeftModel:
    """A fresh adapter on `model`, float32 whatever the base's dtype, that changes nothing yet (appendix A.2).

    Raises ValueError if the rank or the layers do not fit the model.
    """
    _check_layers(model, recipe)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return get_peft_model(model, peft_config(recipe))


def adapters_attach(model: PreTrainedModel, recipe: Recipe, *, seeds: Mapping[str, int]) -> PeftModel:
    """Adapters of one recipe to be trained together, a name and seed each: all trainable, the first one active.

    Each is what adapter_attach makes of its seed. Raises ValueError as it does.
    """
    _check_layers(model, recipe)
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


def _check_layers(model: PreTrainedModel, recipe: Recipe) -> None:
    recipe.check_layers(model.config.get_text_config().num_hidden_layers)


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

    Raises AdapterError if the folder is not a whole adapter; RuntimeError if its shapes are another base's, ValueError
    if its sites are.
    """
    manifest, arrays = adapter_read(folder)
    config = peft_config(_recipe_of(manifest))
    config.target_modules = {str(site).removeprefix("base_model.model.") for site in sites_of(manifest)}
    attached = get_peft_model(model, config)
    tensors_set(attached, {name: torch.from_numpy(array) for name, array in arrays.items()})
    return attached, manifest


def _recipe_of(manifest: Manifest) -> Recipe:
    """All of it but where it acts, which the manifest's tensors say."""
    of_lora = {"alpha": manifest.scale * manifest.rank} if manifest.method == "lora" else {}
    return Recipe(method=manifest.method, position=manifest.position, rank=manifest.rank, **of_lora)


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

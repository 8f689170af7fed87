"""Adapters that visibly do something, for every method and position."""

import torch
from peft import PeftModel

from training_jobs.attach.adapter import adapter_attach
from training_jobs.messages import Recipe

RECIPES = [
    Recipe(method=method, position=position, rank=4)
    for method in ("lora", "direft", "loreft")
    for position in ("prefill", "all")
]
PREFILL = [recipe for recipe in RECIPES if recipe.position == "prefill"]


def name(recipe: Recipe) -> str:
    return f"{recipe.method}-{recipe.position}"


def disturbed(base: torch.nn.Module, recipe: Recipe, *, seed: int = 1) -> PeftModel:
    """An adapter on `base` whose every parameter was moved from its start, in evaluation mode."""
    model = adapter_attach(base, recipe, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in (p for p in model.parameters() if p.requires_grad):
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model.eval()

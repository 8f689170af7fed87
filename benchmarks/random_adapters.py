"""Adapters of random numbers: they cost what trained ones cost, and each changes the answers in its own way."""

from pathlib import Path

import numpy as np

from adapters_store.manifest import BaseRef, Manifest
from adapters_store.names import Method, Position
from adapters_store.preft.config import DEFAULT_ALPHA, PROJECTIONS, scale_of
from adapters_store.weights import adapter_write
from inference.adapter_checks import ServedBase

#: adapter_config.json's peft_type: only an all-position LoRA is something that stock PEFT may load.
_PEFT_TYPE = {"lora": "PREFT_LORA", "direft": "DIREFT", "loreft": "LOREFT"}


def random_adapter(
    folder: Path,
    *,
    base: ServedBase,
    method: Method,
    rank: int,
    seed: int,
    position: Position = "prefill",
    modules: tuple[str, ...] = PROJECTIONS,
    lora_up: float = 0.02,
) -> Manifest:
    """Write an adapter to `folder`; `modules` are what a lora adapts, `lora_up` is the standard deviation of its B.

    A lora's adapter_config.json has PEFT's fields, so that stock vLLM takes the same folder as an all-position LoRA.
    """
    rng = np.random.default_rng(seed)
    tensors: dict[str, np.ndarray] = {}
    for layer in range(base.layers):
        at = f"base_model.model.model.layers.{layer}"
        if method == "lora":
            for module in modules:
                tensors |= _lora(rng, f"{at}.{module}", rank, *base.widths[module], lora_up)
        elif method == "direft":
            tensors |= _direft(rng, at, rank, base.hidden)
        else:
            tensors |= _loreft(rng, at, rank, base.hidden)
    plain = method == "lora" and position == "all"
    config: dict[str, object] = {"peft_type": "LORA" if plain else _PEFT_TYPE[method], "r": rank}
    if method == "lora":
        names = [module.rpartition(".")[2] for module in modules]
        config |= {"lora_alpha": DEFAULT_ALPHA, "target_modules": names}
    return adapter_write(
        folder,
        tensors=tensors,
        config=config,
        base=BaseRef(digest=base.digest, name=base.name),
        method=method,
        position=position,
        rank=rank,
        scale=scale_of(method, rank),
        training={},
    )


def _lora(
    rng: np.random.Generator, at: str, rank: int, width_in: int, width_out: int, up: float
) -> dict[str, np.ndarray]:
    return {
        f"{at}.lora_A.weight": rng.normal(0, width_in**-0.5, (rank, width_in)),
        f"{at}.lora_B.weight": rng.normal(0, up, (width_out, rank)),
    }


def _direft(rng: np.random.Generator, at: str, rank: int, width: int) -> dict[str, np.ndarray]:
    return {
        f"{at}.direft_A.weight": rng.normal(0, width**-0.5, (rank, width)),
        f"{at}.direft_A.bias": rng.normal(0, 2, rank),
        f"{at}.direft_B.weight": rng.normal(0, 0.1, (width, rank)),
    }


def _loreft(rng: np.random.Generator, at: str, rank: int, width: int) -> dict[str, np.ndarray]:
    return {
        f"{at}.loreft_R.weight": np.linalg.qr(rng.normal(size=(width, rank)))[0].T,
        f"{at}.loreft_W.weight": rng.normal(0, width**-0.5, (rank, width)),
        f"{at}.loreft_W.bias": rng.normal(0, 2, rank),
    }

"""Which base model the demo runs on: the packaged one, or another that is first entered in the catalogue."""

import os
from collections.abc import Callable
from dataclasses import dataclass

from local_stack import stack
from local_stack.demo_accounts import manage

DEFAULT = "smollm2-135m-instruct"
LABELS = {DEFAULT: "SmolLM2-135M is a demo model, mostly English: it shows a person's style and few facts."}


@dataclass(frozen=True)
class Base:
    """A base model by its name in the catalogue, and the environment that makes the stack serve it."""

    name: str
    label: str
    env: dict[str, str]


def base_prepare(model: str | None, *, tell: Callable[[str], None]) -> Base:
    """`model`: a hub id or a folder. A new one needs the database, so the stores run once before the rest."""
    name = os.environ.get("ATTUNE_BASE_MODEL", DEFAULT)
    if model is not None:
        tell(f"Entering {model} in the catalogue of base models. A large one takes a while to download.")
        with stack.start(parts={*stack.STORES, "dispatcher"}, on_line=tell) as running:
            name = manage(running, "base_model_add", model).split()[0]
    label = LABELS.get(name, f"All answers are by {name}, with and without an adapter.")
    return Base(name, label, {"ATTUNE_BASE_MODEL": name, "ATTUNE_SIGNUP_OPEN": "true"})

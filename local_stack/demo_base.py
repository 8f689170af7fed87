"""Which base model the demo runs on: the packaged one, or another that is first entered in the catalogue."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass

from local_stack import stack
from local_stack.demo_accounts import manage
from local_stack.home import DEMO_MODEL, STORES


@dataclass(frozen=True)
class Base:
    """A base model by its name in the catalogue, and the environment that makes the stack serve it."""

    name: str
    env: dict[str, str]


def base_prepare(model: str | None, *, licence: str | None, tell: Callable[[str], None]) -> Base:
    """`model`: a hub id or a folder; `licence`: for one that has no model card.

    A new one needs the database, so the stores run once before the rest.
    """
    name = os.environ.get("ATTUNE_BASE_MODEL", DEMO_MODEL)
    if model is not None:
        tell(f"Entering {model} in the catalogue of base models. A large one takes a while to download.")
        with stack.start(parts={*STORES, "migrate"}, fast=False, on_line=tell) as running:
            terms = ("--license", licence) if licence else ()
            name = json.loads(manage(running, "base_model_add", model, *terms))["name"]
    return Base(name, {"ATTUNE_BASE_MODEL": name, "ATTUNE_SIGNUP_OPEN": "true"})

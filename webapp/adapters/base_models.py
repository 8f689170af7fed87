"""The catalogue of base models: entering one, after everything that could go wrong later was checked."""

from django.db import transaction

from webapp.adapters.licences import licence_read
from webapp.adapters.model_folder import (
    ModelFolder,
    check_memory,
    check_size,
    model_config_read,
    model_folder_read,
)
from webapp.adapters.models import BaseModel
from webapp.adapters.sources import source_find
from webapp.config.faults import BadRequest


def base_model_add(
    *,
    source: str,
    revision: str | None = None,
    licence: str | None = None,
    label: str | None = None,
    make_default: bool = False,
    elsewhere: bool = False,
) -> tuple[BaseModel, bool]:
    """Enter a hub id or a local folder; the row, and whether it is new. Idempotent; the first one is the default.

    What the catalogue says of this very model's `licence` and `label` holds until something else is said.
    `elsewhere`: engine and trainer run on other machines, so this one's memory says nothing. Raises BadRequest or
    Unavailable, with what to do; nothing is changed then.
    """
    found = source_find(source, revision=revision)
    found.fetch_facts()
    known = BaseModel.objects.filter(name=found.name).first()
    # Before gigabytes are downloaded in vain.
    model_config_read(found.folder)
    if known is None:
        licence_read(found.folder, name=found.name, source=found.source, said=licence)
    if not elsewhere:
        check_size(found.size())
    found.fetch_weights()
    model = model_folder_read(found.folder)
    if known is not None and known.digest == model.digest:
        licence = known.license if licence is None else licence
        label = known.label if label is None else label
    terms = licence_read(found.folder, name=found.name, source=found.source, said=licence)
    if not elsewhere:
        check_memory(model)
    facts = {
        "source": found.source,
        "revision": found.revision,
        "architecture": model.architecture,
        "context_length": model.context_length,
        "layers": model.layers,
        "memory_bytes": model.memory_bytes,
        "license": terms.licence,
        "attribution": terms.attribution,
        "languages": terms.languages,
        "name_prefix": terms.name_prefix,
        "label": terms.label if label is None else label,
    }
    with transaction.atomic():
        entered = _enter(found.name, model, facts, make_default)
        found.settle()
    return entered


def _enter(
    name: str, model: ModelFolder, facts: dict[str, object], make_default: bool
) -> tuple[BaseModel, bool]:
    known = BaseModel.objects.select_for_update().filter(name=name).first()
    if known is not None and known.digest != model.digest:
        if known.adapters.exists() or known.jobs.exists():
            raise BadRequest(
                f"The catalogue has other weights, tokenizer or chat template under the name {name}, and adapters "
                "that only fit those. Rename the new folder and add it under its own name.",
                code="base_model_changed",
            )
        known.digest = model.digest
    first = not BaseModel.objects.filter(is_default=True).exists()
    base = known or BaseModel(name=name, digest=model.digest)
    for field, value in facts.items():
        setattr(base, field, value)
    if make_default or first:
        BaseModel.objects.filter(is_default=True).exclude(id=base.id).update(is_default=False)
        base.is_default = True
    base.save()
    return base, known is None

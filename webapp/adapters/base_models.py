"""The catalogue of base models: entering one, after everything that could go wrong later was checked."""

import re
from pathlib import Path

from django.db import transaction

from webapp.adapters.hub import hub_download
from webapp.adapters.licences import licence_read
from webapp.adapters.model_folder import ModelFolder, check_memory, model_folder_read
from webapp.adapters.models import BaseModel
from webapp.config.faults import BadRequest
from webapp.config.settings import settings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")


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

    `elsewhere`: engine and trainer run on other machines, so this one's memory says nothing. Raises BadRequest or
    Unavailable, with what to do.
    """
    folder, commit = _folder(source, revision)
    name = folder.name
    model = model_folder_read(folder)
    if not elsewhere:
        check_memory(model)
    terms = licence_read(folder, name=name, source=source, said=licence)
    facts = {
        "source": source if commit or not Path(source).exists() else name,
        "revision": commit or revision or "",
        "architecture": model.architecture,
        "context_length": model.context_length,
        "memory_bytes": model.memory_bytes,
        "license": terms.licence,
        "attribution": terms.attribution,
        "languages": terms.languages,
        "name_prefix": terms.name_prefix,
        "label": terms.label if label is None else label,
    }
    return _enter(name, model, facts, make_default)


@transaction.atomic
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


def _folder(source: str, revision: str | None) -> tuple[Path, str]:
    """The model's folder under MODELS_DIR, and the commit if it came from the hub."""
    models = settings().models_dir
    local = Path(source).expanduser()
    if local.is_dir():
        return _linked(local.resolve(), models), ""
    if _HUB_ID.fullmatch(source) is None:
        raise BadRequest(
            f"{source} is neither a folder nor a hub id such as Qwen/Qwen2.5-0.5B-Instruct.",
            code="unknown_model",
        )
    folder = models / source.split("/")[1].lower()
    models.mkdir(parents=True, exist_ok=True)
    return folder, hub_download(source, revision=revision, folder=folder)


def _linked(folder: Path, models: Path) -> Path:
    """Engines and trainers look for a base by its name under MODELS_DIR: a folder elsewhere is linked there."""
    if _NAME.fullmatch(folder.name) is None:
        raise BadRequest(
            "The folder's name becomes the model's: letters, digits, dots, dashes and underscores only.",
            code="bad_model_name",
        )
    place = models / folder.name
    if place.exists():
        if place.resolve() != folder:
            raise BadRequest(
                f"There is another model called {folder.name} in ATTUNE_MODELS_DIR. Rename one of the two.",
                code="base_model_exists",
            )
        return place
    models.mkdir(parents=True, exist_ok=True)
    place.symlink_to(folder, target_is_directory=True)
    return place

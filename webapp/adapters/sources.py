"""Where a base model comes from, and how its folder gets to where engines and trainers look: MODELS_DIR/<name>.

Nothing is written there before every check has passed: the folder of that name may be serving.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from webapp.adapters.hub import FACTS, WEIGHTS, hub_commit, hub_download, hub_size
from webapp.adapters.models import BaseModel
from webapp.config.faults import BadRequest
from webapp.config.settings import settings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
#: In the same file system, and a level deeper than trainers look for models.
_INCOMING = ".incoming"


@dataclass(frozen=True)
class LocalFolder:
    """A folder of this machine; one outside of MODELS_DIR is linked there. `source` is what the catalogue says."""

    name: str
    source: str
    folder: Path
    place: Path
    revision: str = ""

    def fetch_facts(self) -> None:
        """All is here."""

    def size(self) -> int:
        """Nothing is to be fetched."""
        return 0

    def fetch_weights(self) -> None:
        """All is here."""

    def settle(self) -> None:
        if not self.place.exists():
            self.place.parent.mkdir(parents=True, exist_ok=True)
            self.place.symlink_to(self.folder, target_is_directory=True)


@dataclass(frozen=True)
class HubModel:
    """A commit of a repository; `folder` is its place, or where it is downloaded to on the way there."""

    name: str
    source: str
    folder: Path
    place: Path
    revision: str

    def fetch_facts(self) -> None:
        self._fetch(FACTS)

    def size(self) -> int:
        """Bytes of weights that have to be fetched."""
        if self.folder == self.place:
            return 0
        return hub_size(self.source, commit=self.revision, files=WEIGHTS)

    def fetch_weights(self) -> None:
        self._fetch(WEIGHTS)

    def settle(self) -> None:
        if self.folder != self.place:
            self.folder.rename(self.place)

    def _fetch(self, files: list[str]) -> None:
        if self.folder != self.place:
            self.folder.mkdir(parents=True, exist_ok=True)
            hub_download(self.source, commit=self.revision, folder=self.folder, files=files)


def source_find(said: str, *, revision: str | None) -> LocalFolder | HubModel:
    """What a hub id or a local folder stands for. Raises BadRequest if its name is taken by something else."""
    local = Path(said).expanduser()
    if local.is_dir():
        return _local(local.resolve(), revision)
    if _HUB_ID.fullmatch(said) is None:
        raise BadRequest(
            f"{said} is neither a folder nor a hub id such as HuggingFaceTB/SmolLM2-360M-Instruct.",
            code="unknown_model",
        )
    return _on_hub(said, revision)


def _local(folder: Path, revision: str | None) -> LocalFolder:
    if _NAME.fullmatch(folder.name) is None:
        raise BadRequest(
            "The folder's name becomes the model's: letters, digits, dots, dashes and underscores only.",
            code="bad_model_name",
        )
    place = settings().models_dir / folder.name
    if place.exists() and place.resolve() != folder:
        raise BadRequest(
            f"There is another model called {folder.name} in ATTUNE_MODELS_DIR. Rename one of the two.",
            code="base_model_exists",
        )
    known = BaseModel.objects.filter(name=folder.name).first()
    if known is not None:
        # Where it came from does not change by being added again from its place.
        return LocalFolder(folder.name, known.source, folder, place, known.revision)
    return LocalFolder(folder.name, folder.name, folder, place, revision or "")


def _on_hub(repo: str, revision: str | None) -> HubModel:
    name = repo.split("/")[1].lower()
    place = settings().models_dir / name
    known = BaseModel.objects.filter(name=name).first()
    if known is not None and known.source != repo:
        raise BadRequest(
            f"The catalogue has a model called {name} already, from {known.source}. Download this one to a folder with "
            "another name, and add that folder.",
            code="base_model_exists",
        )
    # Added again without a revision, it stays the one that adapters were trained for.
    commit = known.revision if known and revision is None else hub_commit(repo, revision=revision)
    if known is not None and known.revision != commit:
        raise BadRequest(
            f"The catalogue has {name} at the revision {known.revision}, and adapters fit those weights alone. "
            f"Download {commit} to a folder with another name, and add that folder.",
            code="base_model_changed",
        )
    if known is None and place.exists():
        raise BadRequest(
            f"There is a folder called {name} in ATTUNE_MODELS_DIR that the catalogue does not know. If it is this "
            "model, add the folder; if not, move it away.",
            code="base_model_exists",
        )
    folder = place if place.exists() else place.parent / _INCOMING / f"{name}@{commit}"
    return HubModel(name, repo, folder, place, commit)

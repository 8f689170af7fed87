"""Downloading a base model from the Hugging Face hub, with errors that say what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from webapp.config.faults import BadRequest, Unavailable

#: What says what a model is, small; and what is large.
FACTS = ["*.json", "*.jinja", "README.md", "LICENSE*", "NOTICE*"]
WEIGHTS = ["*.safetensors"]


def hub_commit(repo: str, *, revision: str | None) -> str:
    """The commit that a revision (None: the newest) is now. Raises BadRequest (none, or gated) and Unavailable."""
    # Imported here and below: only one command needs it.
    from huggingface_hub import HfApi

    with _faults(repo, revision):
        return HfApi().model_info(repo, revision=revision).sha or ""


def hub_size(repo: str, *, commit: str, files: list[str]) -> int:
    """Bytes of the files that match, as the hub tells them. Raises like `hub_commit`."""
    from huggingface_hub import HfApi
    from huggingface_hub.utils import filter_repo_objects

    with _faults(repo, commit):
        found = HfApi().model_info(repo, revision=commit, files_metadata=True).siblings or []
    chosen = filter_repo_objects(found, allow_patterns=files, key=lambda file: file.rfilename)
    return sum(file.size or 0 for file in chosen)


def hub_download(repo: str, *, commit: str, folder: Path, files: list[str]) -> None:
    """Fetch the files that match into `folder`; finished ones are kept between tries. Raises like `hub_commit`."""
    from huggingface_hub import snapshot_download

    with _faults(repo, commit):
        snapshot_download(repo, revision=commit, local_dir=folder, allow_patterns=files)


@contextmanager
def _faults(repo: str, revision: str | None) -> Iterator[None]:
    from huggingface_hub.errors import (
        GatedRepoError,
        HTTPError,  # of the client that it uses, which need not be the one that we use
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        yield
    except GatedRepoError:
        raise BadRequest(
            f"{repo} is gated. Accept its licence at https://huggingface.co/{repo}, then set HF_TOKEN to a token of "
            "that account and try again.",
            code="model_gated",
        ) from None
    except RevisionNotFoundError:
        raise BadRequest(f"{repo} has no revision {revision}.", code="unknown_revision") from None
    except RepositoryNotFoundError:
        raise BadRequest(
            f"There is no folder and no model on the hub called {repo} (a private one needs HF_TOKEN).",
            code="unknown_model",
        ) from None
    except OfflineModeIsEnabled:
        raise Unavailable(
            "HF_HUB_OFFLINE is set. Unset it, or give a local folder.", code="hub_offline"
        ) from None
    except (HTTPError, LocalEntryNotFoundError, OSError) as error:
        raise Unavailable(
            f"The hub cannot be reached ({type(error).__name__}). Try again, or download the model elsewhere and give "
            "its folder.",
            code="hub_unavailable",
        ) from None

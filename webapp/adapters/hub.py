"""Downloading a base model from the Hugging Face hub, with errors that say what to do."""

from pathlib import Path

from webapp.config.faults import BadRequest, Unavailable

_FILES = ["*.safetensors", "*.json", "*.jinja", "README.md", "LICENSE*", "NOTICE*"]


def hub_download(repo: str, *, revision: str | None, folder: Path) -> str:
    """Fetch `repo` into `folder` (finished files are kept between tries); the commit that was fetched.

    Raises BadRequest (no such model, or gated), Unavailable (the hub cannot be reached).
    """
    # Imported here: only this command needs it.
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        commit = HfApi().model_info(repo, revision=revision).sha
        snapshot_download(repo, revision=commit, local_dir=folder, allow_patterns=_FILES)
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
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        raise Unavailable(
            f"The hub cannot be reached ({type(error).__name__}). Try again, or download the model elsewhere and give "
            "its folder.",
            code="hub_unavailable",
        ) from None
    return commit or ""

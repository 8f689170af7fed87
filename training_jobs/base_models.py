"""Base models on this machine: which there are, and the one that is loaded."""

import gc
from dataclasses import dataclass
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from adapters_store.base import base_digest
from adapters_store.chat_template import ChatEncoder, TemplateUnfit
from adapters_store.errors import AdapterMissing
from training_jobs.errors import OurFault
from training_jobs.messages import Base

# A worker's log is no terminal, and the tokenizer's alignment of end tokens is no news.
transformers.utils.logging.disable_progress_bar()
transformers.utils.logging.set_verbosity_error()

#: Longer conversations are left out of training, whatever the model could read: memory grows with the longest row.
MAX_TOKENS = 4096


@dataclass(frozen=True)
class LoadedBase:
    """Frozen weights on their device, float32 on a CPU and bfloat16 on a GPU, and the tokenizer."""

    ref: Base
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    encoder: ChatEncoder
    max_tokens: int


def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def base_load(folder: Path, ref: Base, *, max_tokens: int = MAX_TOKENS) -> LoadedBase:
    """Load a base model after checking that it is the one that is meant.

    Raises OurFault: base_missing, base_changed (the folder holds other bytes than the catalogue says), base_unfit.
    """
    if base_digest_of(folder) != ref.digest:
        raise OurFault(
            "base_changed",
            f"The trainer's copy of {ref.name} is not the one in the catalogue. Copy the right one to its "
            "ATTUNE_MODELS_DIR, or add this one with `manage.py base_model_add`.",
        )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    try:
        encoder = ChatEncoder(tokenizer)
    except TemplateUnfit as error:
        raise OurFault("base_unfit", f"{ref.name} cannot be trained on conversations: {error}") from None
    where = device()
    dtype = torch.bfloat16 if where.type == "cuda" else torch.float32
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).to(where)
    model.requires_grad_(False)
    limit = min(max_tokens, getattr(model.config, "max_position_embeddings", max_tokens))
    return LoadedBase(ref, model.eval(), tokenizer, encoder, limit)


def base_digest_of(folder: Path) -> str:
    try:
        return base_digest(folder)
    except AdapterMissing:
        raise OurFault(
            "base_missing",
            f"This trainer does not have the base model {folder.name}. Put its folder into ATTUNE_MODELS_DIR.",
        ) from None


class WarmBase:
    """The base model of the last job, kept for the next one."""

    def __init__(self, models_dir: Path, *, max_tokens: int = MAX_TOKENS) -> None:
        self._models_dir = models_dir
        self._max_tokens = max_tokens
        self._loaded: LoadedBase | None = None

    def get(self, ref: Base) -> LoadedBase:
        """The loaded base, from memory if it is the last job's. `ref.name` is a folder's name, never a path."""
        if ref.name != Path(ref.name).name or ref.name.startswith("."):
            raise OurFault(
                "base_missing", "The job names its base model by something that is not a folder's name."
            )
        if self._loaded is None or self._loaded.ref != ref:
            self.forget()
            self._loaded = base_load(self._models_dir / ref.name, ref, max_tokens=self._max_tokens)
        return self._loaded

    def forget(self) -> None:
        """Free the memory; also after a job that may have left the model other than it was."""
        self._loaded = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

"""What bodies, forms and queries of the API may hold (webapp/config/strict_json.py reads them)."""

from typing import Annotated, Any, Literal, TypeVar

from django.http import QueryDict
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from adapters_store.names import Method, Position
from adapters_store.preft.config import TargetModule
from training_jobs.messages import HELD_OUT_MOST_SHARE, MOST_BETA, JobType, Layer
from webapp.config.strict_json import read_object
from webapp.datasets.upload import Voice

M = TypeVar("M", bound=BaseModel)


def _no_nul(text: str) -> str:
    if "\x00" in text:
        raise ValueError("must not contain the character NUL")
    return text


Text = Annotated[str, AfterValidator(_no_nul)]
Metadata = Annotated[
    dict[Annotated[Text, Field(min_length=1, max_length=64)], Annotated[Text, Field(max_length=512)]],
    Field(max_length=16),
]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class HyperparametersAsked(Body):
    """OpenAI's three; "auto" leaves the choice to us."""

    n_epochs: Annotated[int, Field(ge=1, le=50)] | Literal["auto"] = "auto"
    batch_size: Annotated[int, Field(ge=1, le=256)] | Literal["auto"] = "auto"
    learning_rate_multiplier: Annotated[float, Field(gt=0, le=1000)] | Literal["auto"] = "auto"


class DpoHyperparametersAsked(HyperparametersAsked):
    beta: Annotated[float, Field(gt=0, le=MOST_BETA)] | Literal["auto"] = "auto"


class Supervised(Body):
    hyperparameters: HyperparametersAsked | None = None


class Dpo(Body):
    hyperparameters: DpoHyperparametersAsked | None = None


class MethodAsked(Body):
    """How to train: from answers, or from preference pairs. Reinforcement training is not available yet."""

    type: JobType
    supervised: Supervised | None = None
    dpo: Dpo | None = None


class AdapterAsked(Body):
    """Attune's own: which adapter to train. Send it with the client's `extra_body={"adapter": {…}}`."""

    method: Method = "direft"
    position: Position = "prefill"
    rank: Annotated[int, Field(ge=1, le=256)] | None = None
    alpha: Annotated[float, Field(gt=0, le=10_000)] | None = None
    target_modules: Annotated[list[TargetModule], Field(min_length=1, max_length=7)] | None = None
    layers: Annotated[list[Layer], Field(min_length=1, max_length=1000)] | Literal["all"] = "all"


class JobRequest(Body):
    """POST /v1/fine_tuning/jobs. `metadata.user` names the end user that the adapter is for."""

    model: Annotated[Text, Field(min_length=1, max_length=200)]
    training_file: Annotated[Text, Field(max_length=100)]
    validation_file: Annotated[Text, Field(max_length=100)] | None = None
    suffix: Annotated[Text, Field(min_length=1, max_length=64)] | None = None
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    metadata: Metadata | None = None
    method: MethodAsked | None = None
    #: The older place, before `method`.
    hyperparameters: HyperparametersAsked | None = None
    integrations: Annotated[list[Any], Field(max_length=0)] | None = None
    adapter: AdapterAsked | None = None
    #: Attune's own: the share of the training file's conversations to judge by, 0 for none. Likewise in `extra_body`.
    held_out: Annotated[float, Field(ge=0, le=HELD_OUT_MOST_SHARE)] | None = None


class FileForm(BaseModel):
    """POST /v1/files, beside the part `file`. Attune's own: `user` (whose conversations these are), `me` (which speaker
    of a chat export that is), `voice` (whom to train in an assistant's export), `mask` (replace what is sensitive)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    purpose: Annotated[Text, Field(max_length=40)]
    user: Annotated[Text, Field(min_length=1, max_length=200)] | None = None
    me: Annotated[Text, Field(min_length=1, max_length=200)] | None = None
    voice: Voice | None = None
    mask: bool = False
    expires_after_anchor: Annotated[Literal["created_at"] | None, Field(alias="expires_after[anchor]")] = None
    expires_after_seconds: Annotated[
        Annotated[int, Field(ge=3600, le=2_592_000)] | None, Field(alias="expires_after[seconds]")
    ] = None


class Page(BaseModel):
    """A cursor: the id of the last item of the page before."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: Annotated[Text, Field(max_length=100)] | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


class CheckpointsPage(Page):
    limit: Annotated[int, Field(ge=1, le=100)] = 10


class FilesPage(Page):
    limit: Annotated[int, Field(ge=1, le=10_000)] = 10_000
    order: Literal["asc", "desc"] = "desc"
    purpose: Annotated[Text, Field(max_length=40)] | None = None


def read_form(model: type[M], fields: QueryDict) -> M:
    """Form fields or a query string, checked; the last of a repeated field counts."""
    return read_object(model, dict(fields.items()))


class _MetadataFilter(Body):
    metadata: Metadata


def metadata_filter(query: QueryDict) -> tuple[QueryDict, dict[str, str]]:
    """`metadata[key]=value` pairs, and the query without them."""
    rest, wanted = query.copy(), {}
    for name, value in query.items():
        if name.startswith("metadata[") and name.endswith("]"):
            wanted[name[len("metadata[") : -1]] = value
            del rest[name]
    return rest, read_object(_MetadataFilter, {"metadata": wanted}).metadata

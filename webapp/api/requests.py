"""Bodies and queries of the API, strict: an unknown field is refused by name rather than ignored."""

from typing import Annotated, Any, Literal, TypeVar

import orjson
from django.http import QueryDict
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from adapters_store.names import Method, Position
from webapp.config.faults import BadRequest
from webapp.datasets.upload import Voice

M = TypeVar("M", bound=BaseModel)
#: What pydantic calls the members of our unions.
_TYPES = {"int", "float", "str", "constrained-int", "constrained-float", "constrained-str"}


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


class Supervised(Body):
    hyperparameters: HyperparametersAsked | None = None


class MethodAsked(Body):
    """How to train. Preference and reinforcement training are not available yet."""

    type: Literal["supervised"]
    supervised: Supervised | None = None


class AdapterAsked(Body):
    """Attune's own: which adapter to train. Send it with the client's `extra_body={"adapter": {…}}`."""

    method: Method = "direft"
    position: Position = "prefill"
    rank: Annotated[int, Field(ge=1, le=256)] | None = None
    alpha: Annotated[float, Field(gt=0, le=10_000)] | None = None


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


class FileForm(BaseModel):
    """POST /v1/files, beside the part `file`. Attune's own: `user` (whose conversations these are), `me` (which speaker
    of a chat export that is), `voice` (whom to train in an assistant's export)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    purpose: Annotated[Text, Field(max_length=40)]
    user: Annotated[Text, Field(min_length=1, max_length=200)] | None = None
    me: Annotated[Text, Field(min_length=1, max_length=200)] | None = None
    voice: Voice = "assistant"
    expires_after_anchor: Annotated[Literal["created_at"] | None, Field(alias="expires_after[anchor]")] = None
    expires_after_seconds: Annotated[
        Annotated[int, Field(ge=3600, le=2_592_000)] | None, Field(alias="expires_after[seconds]")
    ] = None


class Page(BaseModel):
    """A cursor: the id of the last item of the page before."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after: Annotated[Text, Field(max_length=100)] | None = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20


class EventsPage(Page):
    pass


class CheckpointsPage(Page):
    limit: Annotated[int, Field(ge=1, le=100)] = 10


class FilesPage(Page):
    limit: Annotated[int, Field(ge=1, le=10_000)] = 10_000
    order: Literal["asc", "desc"] = "desc"
    purpose: Annotated[Text, Field(max_length=40)] | None = None


def read_json(model: type[M], raw: bytes) -> M:
    """The body, checked; raises BadRequest naming the first thing that is wrong."""
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"The body is not JSON: {error}", code="bad_json") from None
    if not isinstance(document, dict):
        raise BadRequest("The body must be a JSON object.", code="bad_json")
    return _validated(model, document)


def read_form(model: type[M], fields: QueryDict) -> M:
    """Form fields or a query string, checked likewise; the last of a repeated field counts."""
    return _validated(model, dict(fields.items()))


def metadata_filter(query: QueryDict) -> tuple[QueryDict, dict[str, str]]:
    """`metadata[key]=value` pairs, and the query without them."""
    rest, wanted = query.copy(), {}
    for name, value in query.items():
        if name.startswith("metadata[") and name.endswith("]"):
            wanted[name[len("metadata[") : -1]] = _no_nul(value) if "\x00" not in value else ""
            del rest[name]
    return rest, wanted


def _validated(model: type[M], document: dict[str, Any]) -> M:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise _fault(error) from None


def _fault(error: ValidationError) -> BadRequest:
    """The first fault, by its dotted path as the caller wrote it; the value itself is never repeated."""
    first = error.errors(include_input=False, include_url=False)[0]
    # A union adds the name of the type that was tried last, which the caller never wrote.
    path = ".".join(str(part) for part in first["loc"] if not _is_type(part)) or None
    if first["type"] == "extra_forbidden":
        return BadRequest(
            f"Unknown field '{path}'. Check its spelling, or leave it out.",
            code="unknown_parameter",
            param=path,
        )
    if first["type"] == "missing":
        return BadRequest(f"'{path}' is missing.", code="missing_required_parameter", param=path)
    message = str(first["msg"]).removeprefix("Value error, ")
    return BadRequest(f"{path or 'body'}: {message}.", code="invalid_value", param=path)


def _is_type(part: str | int) -> bool:
    return isinstance(part, str) and (
        part in _TYPES or ("[" in part and not part.startswith("expires_after["))
    )

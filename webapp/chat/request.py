"""What a chat request may hold. An allowlist: a field that is not here is refused by name, never forwarded.

OpenAI's request, less what would let a caller reach into the engine: templates, token lists, logits, media.
"""

import re
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, model_validator

from webapp.chat.schema_patterns import check_patterns
from webapp.config.faults import TooLarge
from webapp.config.strict_json import read_json

MAX_BODY_BYTES = 1_000_000
MAX_SCHEMA_BYTES = 20_000
MAX_SCHEMA_DEPTH = 12

#: OpenAI's fields that nothing here can honour: named as such, not as misspelt.
NOT_SUPPORTED = frozenset({
    "audio", "function_call", "functions", "logit_bias", "metadata", "modalities",
    "parallel_tool_calls", "prediction", "prompt_cache_key", "prompt_cache_retention", "reasoning_effort",
    "service_tier", "tool_choice", "tools", "verbosity", "web_search_options",
})  # fmt: skip


def _in_form(pattern: str, otherwise: str) -> AfterValidator:
    """The whole text is of this pattern, or the error is the sentence: nobody should have to read a pattern."""
    form = re.compile(pattern)

    def check(text: str) -> str:
        if not form.fullmatch(text):
            raise ValueError(otherwise)
        return text

    return AfterValidator(check)


#: PostgreSQL stores no NUL, and nobody's id or model's name has control characters.
_printable = _in_form(r"[^\x00-\x1f\x7f]*", "must not contain control characters")
_UserId = Annotated[str, StringConstraints(min_length=1, max_length=200), _printable]
_Stop = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TextPart(_Part):
    type: Literal["text"]
    text: str


class ChatMessage(_Part):
    """One turn. The nullable fields after `name` are what clients send back of an earlier answer: they are dropped."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | Annotated[list[TextPart], Field(max_length=100)] | None = None
    name: Annotated[str, _in_form(r"[\w.-]{1,64}", "must be 1 to 64 letters, digits, _, . or -")] | None = (
        None
    )
    refusal: None = None
    audio: None = None
    function_call: None = None
    tool_calls: Annotated[list[Any], Field(max_length=0)] | None = None
    annotations: Annotated[list[Any], Field(max_length=0)] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(part.text for part in self.content)
        return self.content or ""


class StreamOptions(_Part):
    include_usage: bool | None = None
    #: OpenAI pads chunks to hide their length; ours are not padded, so only "no" can be honoured.
    include_obfuscation: Literal[False] | None = None


class JsonSchema(_Part):
    name: Annotated[str, _in_form(r"[\w-]{1,64}", "must be 1 to 64 letters, digits, _ or -")]
    description: Annotated[str, StringConstraints(max_length=1000)] | None = None
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if _depth(self.schema_) > MAX_SCHEMA_DEPTH:
            raise ValueError(f"the schema is nested more than {MAX_SCHEMA_DEPTH} levels deep")
        if len(orjson.dumps(self.schema_)) > MAX_SCHEMA_BYTES:
            raise ValueError(f"the schema is larger than {MAX_SCHEMA_BYTES} bytes")
        check_patterns(self.schema_)
        return self


class ResponseFormat(_Part):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("json_schema belongs to the type json_schema, and to no other")
        return self


class ChatRequest(_Part):
    """A request for chat completions; numbers are in OpenAI's ranges, `n` and lengths capped tighter."""

    model: Annotated[str, StringConstraints(min_length=1, max_length=300), _printable]
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=1000)]
    user: _UserId | None = None
    safety_identifier: _UserId | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=8)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=32_768)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=32_768)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: _Stop | Annotated[list[_Stop], Field(max_length=4)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    response_format: ResponseFormat | None = None
    #: Chats are never stored, so only "do not" can be asked for.
    store: Literal[False] | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.user and self.safety_identifier and self.user != self.safety_identifier:
            raise ValueError("user and safety_identifier name different end users; send one of them")
        if self.max_tokens and self.max_completion_tokens and self.max_tokens != self.max_completion_tokens:
            raise ValueError("max_tokens and max_completion_tokens differ; send one of them")
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs: true")
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options needs stream: true")
        return self

    @property
    def end_user(self) -> str | None:
        return self.user or self.safety_identifier

    @property
    def include_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


#: What is forwarded as it is, when given. Everything else is decided here or at the gateway.
_FORWARDED = {
    "n", "temperature", "top_p", "presence_penalty", "frequency_penalty", "seed", "stop", "logprobs",
    "top_logprobs", "response_format",
}  # fmt: skip


def chat_request(body: bytes) -> ChatRequest:
    """A checked request, or a UserFault that names the field and what to do."""
    check_size(body)
    return read_json(ChatRequest, body, not_supported=NOT_SUPPORTED)


def check_size(body: bytes) -> None:
    if len(body) > MAX_BODY_BYTES:
        raise TooLarge(
            f"A chat request may hold {MAX_BODY_BYTES:,} bytes; send a shorter conversation.",
            code="request_too_large",
        )


def engine_body(request: ChatRequest, *, model: str, cache_salt: str) -> dict[str, Any]:
    """What the engine is asked: nothing of who the end user is, always streamed, always with token counts."""
    body = request.model_dump(include=_FORWARDED, exclude_none=True, by_alias=True)
    limit = request.max_completion_tokens or request.max_tokens
    if limit is not None:
        body["max_completion_tokens"] = limit
    body["messages"] = [_engine_message(message) for message in request.messages]
    return body | {
        "model": model,
        "cache_salt": cache_salt,
        "stream": True,
        # Counts with every chunk, so that a request that ends early is counted as far as it came.
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def _engine_message(message: ChatMessage) -> dict[str, str]:
    # Open models know "system"; "developer" is OpenAI's newer word for it.
    role = "system" if message.role == "developer" else message.role
    named = {"name": message.name} if message.name else {}
    return {"role": role, "content": message.text} | named


def _depth(value: Any, level: int = 1) -> int:
    if level > MAX_SCHEMA_DEPTH:
        return level
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max((_depth(child, level + 1) for child in children), default=level)

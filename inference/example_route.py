"""POST /v1/examples on the engine: the tokens of an answer that a training would learn, and those of its prompt.

The engine has the tokenizer that trainers have, and this is their rule, so whoever uploads sees exactly what is learned
before anything is trained.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Literal

from pydantic import BaseModel, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse

from adapters_store.chat_template import ChatEncoder, TemplateRefused, TemplateUnfit, TooLong
from inference.http_errors import openai_error

#: One thread: the tokenizer is shared, and while it reads what quotes control tokens it reads nothing else rightly.
_READER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="attune-examples")


class Message(BaseModel):
    role: Literal["system", "user", "assistant"]
    content: str


class Example(BaseModel):
    """A conversation up to the answer that is learned, which is the last message."""

    messages: list[Message] = Field(min_length=2)


class ExampleRoute:
    """ASGI middleware; everything else goes on to vLLM."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or (scope["method"], scope["path"]) != ("POST", "/v1/examples"):
            return await self.app(scope, receive, send)
        response = await self._answer(Request(scope, receive))
        return await response(scope, receive, send)

    async def _answer(self, request: Request) -> JSONResponse:
        """{"prompt": [...], "target": [...]}: the text of each token."""
        try:
            example = Example.model_validate_json(await request.body())
        except ValidationError:
            return openai_error(400, "Send messages with a role and a content.", code="invalid_example")
        model = request.app.state.openai_serving_models.engine_client.model_config
        try:
            loop = asyncio.get_running_loop()
            return JSONResponse(
                await loop.run_in_executor(
                    _READER, _tokens, model.tokenizer, example.messages, model.max_model_len
                )
            )
        except TooLong:
            return openai_error(
                400, f"It is longer than the {model.max_model_len} tokens that are trained.", code="too_long"
            )
        except (TemplateRefused, TemplateUnfit):
            return openai_error(
                400, "The base model's chat template does not take these messages.", code="template_refused"
            )


def _tokens(tokenizer: str, messages: list[Message], max_tokens: int) -> dict[str, list[str]]:
    encoder, decode = _encoder(tokenizer)
    prompt, target = encoder.prompt_and_target(messages, max_tokens=max_tokens)
    return {"prompt": [decode([token]) for token in prompt], "target": [decode([token]) for token in target]}


@lru_cache(maxsize=1)
def _encoder(folder: str) -> tuple[ChatEncoder, Any]:
    """As trainers load it (training_jobs.base_models)."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    return ChatEncoder(tokenizer), tokenizer.decode

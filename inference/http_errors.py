"""AdapterErrors in the shape that OpenAI's clients read, with the status that tells them whether to try again."""

from starlette.responses import JSONResponse

from adapters_store.errors import AdapterError

#: What is not here is our fault: 500.
_STATUS = {
    "bad_adapter_name": 404,
    "adapter_not_found": 404,
    "adapter_wrong_base": 400,
    "adapter_rank_too_high": 400,
    "adapter_unsupported": 400,
    # The request is fine and so is the engine; asking again will not mend the bytes.
    "adapter_corrupt": 422,
    "adapter_cache_full": 503,
    "adapter_memory_full": 503,
    "storage_unavailable": 503,
}
_RETRY_AFTER_SECONDS = 1


def error_response(error: AdapterError) -> JSONResponse:
    status = _STATUS.get(error.code, 500)
    kind = "invalid_request_error" if status < 500 else "server_error"
    return openai_error(status, error.message, code=error.code, kind=kind, param="model")


def openai_error(
    status: int, message: str, *, code: str, kind: str = "invalid_request_error", param: str | None = None
) -> JSONResponse:
    """`{"error": {message, type, param, code}}`; a 503 says when to come back."""
    body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    headers = {"retry-after": str(_RETRY_AFTER_SECONDS)} if status == 503 else None
    return JSONResponse(body, status_code=status, headers=headers)

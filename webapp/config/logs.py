"""One JSON object a line on standard error, each with the request id. Never a prompt, an answer or an uploaded row.

The text of an exception may quote one: a line has its type and frames.
"""

import logging
import sys
from typing import Any

import structlog

from adapters_store.traces import trace

_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
]


def configure_logs(level: str) -> None:
    """Send structlog's and the standard library's records through the same JSON renderer."""
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=_SHARED,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _without_locals,
                structlog.processors.ExceptionRenderer(lambda info: trace(info[1])),
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    handler.addFilter(_route_for_path)
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    # It has a handler of its own, which prints exceptions with their texts.
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).handlers = []
        logging.getLogger(name).propagate = True
    # Their lines repeat ours, or carry the query string.
    for name in ("httpx", "httpcore", "botocore", "boto3", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # A line with the path for each 404; ours names the route.
    logging.getLogger("django.request").setLevel(logging.ERROR)
    # Debugging, it prints all that a page is made of: keys and links that are shown once too.
    logging.getLogger("django.template").setLevel(logging.INFO)


def route_of(request: Any) -> str:
    """What a line may say of an address. The path itself may hold ids of people, and a link's token."""
    return request.resolver_match.route if request.resolver_match else "(none)"


def _route_for_path(record: logging.LogRecord) -> bool:
    """Django's own lines (a fault of ours, a form without its CSRF token) name the path."""
    request = getattr(record, "request", None)
    if hasattr(request, "resolver_match") and isinstance(record.args, tuple):
        record.args = tuple(route_of(request) if arg == request.path else arg for arg in record.args)
    return True


def _without_locals(_: Any, __: str, event: dict[str, Any]) -> dict[str, Any]:
    """Django hands its request object to loggers; its repr has the query string."""
    event.pop("request", None)
    return event

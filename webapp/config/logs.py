"""One JSON object a line on standard error, each with the request id. Never a prompt, an answer or an uploaded row."""

import logging
import sys
from typing import Any

import structlog

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
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())
    # Their lines repeat ours, or carry the query string.
    for name in ("httpx", "httpcore", "botocore", "boto3", "uvicorn.access"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # A line with the path for each 404; ours names the route.
    logging.getLogger("django.request").setLevel(logging.ERROR)


def _without_locals(_: Any, __: str, event: dict[str, Any]) -> dict[str, Any]:
    """Django hands its request object to loggers; its repr has the query string."""
    event.pop("request", None)
    return event

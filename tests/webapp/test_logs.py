"""What the process prints, in a process of its own: pytest has logging for itself here."""

import json
import subprocess
import sys

from local_stack.home import ROOT

CANARY = "zanzibar"
FAULTS = f"""
import logging.config, structlog, uvicorn.config
from webapp.config.logs import configure_logs

logging.config.dictConfig(uvicorn.config.LOGGING_CONFIG)
configure_logs("INFO")
try:
    try:
        {{}}["{CANARY[::-1]}"[::-1]]
    except KeyError as error:
        raise ValueError("a row says " + error.args[0]) from error
except ValueError as error:
    structlog.get_logger("webapp.api").exception("unexpected", exc_info=error)
    logging.getLogger("django.request").exception("Internal Server Error")
    logging.getLogger("uvicorn.error").exception("Exception in ASGI application")
"""


def test_an_exception_is_logged_by_type_and_place_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FAULTS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert CANARY not in done.stderr
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["logger"] for line in lines] == ["webapp.api", "django.request", "uvicorn.error"]
    for line in lines:
        assert "builtins.KeyError\nwhich led to\n" in line["exception"]
        assert line["exception"].endswith("builtins.ValueError")

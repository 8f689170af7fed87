"""vLLM's general plugin: called by vLLM in every process it starts, any number of times.

vLLM logs and swallows whatever a plugin raises, and would then serve prefill-only adapters as ordinary ones. So nothing
here raises: a refusal is remembered, active() says so, and whoever starts an engine asks. preft_engine_args() asks for
its own process, `collective_rpc("attune_status")` answers for the workers (it does not exist where the plugin is not
active), and an EngineCore without the plugin never admits what a worker with it would need.
"""

import hashlib
import logging
from pathlib import Path

logger = logging.getLogger("vllm.attune")

_refusal: str | None = (
    "vLLM has not loaded Attune's plugin: install attune-saas beside it, and check VLLM_PLUGINS."
)


class PluginInactive(RuntimeError):
    """The plugin is not at work in this process; the message says why and what to do."""


def register() -> None:
    """The entry point (vllm.general_plugins). Does its work once a process; never raises."""
    global _refusal
    if active():
        return
    try:
        from inference import compat, compat_chat, compat_http, compat_logs, compat_pin, compat_removal

        compat.install()
        compat_removal.install()
        compat_pin.install()
        compat_http.install()
        compat_chat.install()
        compat_logs.install()
    except Exception as error:
        _refusal = f"{type(error).__name__}: {error}"
        logger.error("Attune's plugin is not active. %s", _refusal)
    else:
        _refusal = None


def active() -> bool:
    return _refusal is None


def require_active() -> None:
    """Raise PluginInactive unless register() has done its work in this process."""
    if _refusal is not None:
        raise PluginInactive(_refusal)


def on_cpu() -> bool:
    from inference import compat

    return compat.on_cpu()


def source_digest() -> str:
    """16 hex digits that change whenever this package's code does."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]

"""The HTTP half of compat: what is touched of vLLM's API server, why, and when it can go."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

from inference.compat_table import TOUCHED_IN_SERVER, check_sources, installed_version
from inference.http_models import resolve_lora
from inference.request_scope import RequestAdapters

_SERVING = "vllm.entrypoints.openai.models.serving"
#: Where each version keeps its server's options and the server. Goes when they stay where they are.
_OPTIONS = {
    "0.26.0": "vllm.entrypoints.openai.cli_args",
    "0.32.0": "vllm.entrypoints.launchers.cli_args",
    "0.33.0": "vllm.entrypoints.common.cli_args",
}
_SERVER = {
    "0.26.0": "vllm.entrypoints.openai.api_server",
    "0.32.0": "vllm.entrypoints.launchers.api_server.entry",
    "0.33.0": "vllm.entrypoints.launchers.api_server.entry",
}


def install() -> None:
    """Called by the plugin in every process; acts only in one that has the HTTP server.

    0.26-0.33, OpenAIServingModels: `lora_requests` remembers a resolver's answer for ever and never asks again, and
    `resolve_lora` loads on the engine's loop and turns every failure into "does not exist". Goes when
    vLLM asks resolvers on every request and lets them say why they refuse.
    """
    serving = sys.modules.get(_SERVING)
    if serving is None or serving.OpenAIServingModels.resolve_lora is resolve_lora:
        return
    check_sources(TOUCHED_IN_SERVER)
    stock_init = serving.OpenAIServingModels.__init__

    def init_with_scoped_adapters(self: Any, *args: Any, **kwargs: Any) -> None:
        stock_init(self, *args, **kwargs)
        self.lora_requests = RequestAdapters()

    serving.OpenAIServingModels.__init__ = init_with_scoped_adapters
    serving.OpenAIServingModels.resolve_lora = resolve_lora


def server_options() -> tuple[Callable[[Any], Any], Callable[[Any], None]]:
    """vLLM's make_arg_parser and validate_parsed_serve_args."""
    module = importlib.import_module(_OPTIONS[installed_version()])
    return module.make_arg_parser, module.validate_parsed_serve_args


def server() -> Callable[[Any], Any]:
    """vLLM's run_server, a coroutine function of the parsed options."""
    run_server: Callable[[Any], Any] = importlib.import_module(_SERVER[installed_version()]).run_server
    return run_server

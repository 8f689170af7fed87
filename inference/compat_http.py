"""The HTTP half of compat: what is touched of vLLM's API server, why, and when it can go."""

import sys
from typing import Any

from inference.http_models import resolve_lora
from inference.request_scope import RequestAdapters

_SERVING = "vllm.entrypoints.openai.models.serving"


def install() -> None:
    """Called by the plugin in every process; acts only in one that has the HTTP server.

    0.32, OpenAIServingModels: `lora_requests` remembers a resolver's answer for ever and never asks again, and
    `resolve_lora` loads on the engine's loop and turns every failure into "does not exist". Goes when
    vLLM asks resolvers on every request and lets them say why they refuse.
    """
    serving = sys.modules.get(_SERVING)
    if serving is None or serving.OpenAIServingModels.resolve_lora is resolve_lora:
        return
    stock_init = serving.OpenAIServingModels.__init__

    def init_with_scoped_adapters(self: Any, *args: Any, **kwargs: Any) -> None:
        stock_init(self, *args, **kwargs)
        self.lora_requests = RequestAdapters()

    serving.OpenAIServingModels.__init__ = init_with_scoped_adapters
    serving.OpenAIServingModels.resolve_lora = resolve_lora

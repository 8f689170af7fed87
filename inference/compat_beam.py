"""The part of compat that refuses beam search with prefill-only adapters: each beam's next token is a new request."""

import functools
import inspect
from typing import Any

from inference.engine_checks import check_no_beams


def install() -> None:
    """Called by compat, after the sources were checked.

    0.26-0.33. Every step of a beam search asks for a prompt that ends with the tokens found so far, which would be
    adapted as if they had been asked. Goes when vLLM searches inside one request.
    """
    from vllm.entrypoints.generate.beam_search.offline import BeamSearchOfflineMixin
    from vllm.entrypoints.generate.beam_search.online import BeamSearchOnlineMixin

    for mixin in (BeamSearchOfflineMixin, BeamSearchOnlineMixin):
        mixin.beam_search = _checked(mixin.beam_search)


def _checked(search: Any) -> Any:
    arguments = inspect.signature(search)

    @functools.wraps(search)
    def beam_search(*args: Any, **kwargs: Any) -> Any:
        check_no_beams(arguments.bind(*args, **kwargs).arguments.get("lora_request"))
        return search(*args, **kwargs)

    return beam_search

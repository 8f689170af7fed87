"""The part of compat that keeps what a chat message quotes from being read as a command."""

import functools
from collections.abc import Iterator
from typing import Any

from adapters_store.control_tokens import ControlTokens
from inference.compat_table import installed_version


def install() -> None:
    """0.26-0.33. A control token typed by a user is read as one, so a message can end its own turn, and its prompt has
    other tokens than the trainer's. Goes when vLLM tokenizes contents apart from the template.
    """
    from vllm.renderers import hf

    original = hf.safe_apply_chat_template
    masks = installed_version() == "0.26.0"

    @functools.wraps(original)
    def safe_apply_chat_template(
        model_config: Any, tokenizer: Any, conversation: Any, *, tools: Any = None, **kwargs: Any
    ) -> Any:
        guard = _control_tokens(tokenizer).guard([*_strings(conversation), *_strings(tools)])
        if not guard:
            return original(model_config, tokenizer, conversation, tools=tools, **kwargs)
        if masks and kwargs.get("return_assistant_tokens_mask"):
            # 0.26 alone: which tokens are the assistant's is known to the template, and lost with what is hidden.
            raise ValueError(
                "return_assistant_tokens_mask cannot be had of messages that quote a control token; leave it off."
            )
        rendered = original(
            model_config,
            tokenizer,
            _hidden(conversation, guard),
            tools=_hidden(tools, guard),
            **kwargs | {"tokenize": False},
        )
        return guard.ids(rendered)

    hf.safe_apply_chat_template = safe_apply_chat_template


@functools.lru_cache(maxsize=4)
def _control_tokens(tokenizer: Any) -> ControlTokens:
    return ControlTokens(tokenizer)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)


def _hidden(value: Any, guard: Any) -> Any:
    if isinstance(value, str):
        return guard.hide(value)
    if isinstance(value, dict):
        return {key: _hidden(item, guard) for key, item in value.items()}
    if isinstance(value, list):
        return [_hidden(item, guard) for item in value]
    return value

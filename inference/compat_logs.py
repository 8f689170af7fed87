"""The part of compat that keeps what a request's schema says out of vLLM's log."""

import logging

from adapters_store.traces import trace

#: Where a schema is compiled.
_LOGGERS = ("vllm.v1.structured_output", "vllm.v1.structured_output.backend_guidance")


def install() -> None:
    """0.26-0.33. A schema that cannot be compiled is logged with the compiler's sentence, which quotes it. Goes when
    vLLM logs no more than which request it was.

    xgrammar also prints to standard error by itself, quoting patterns of which it keeps a part: the gateway refuses
    those.
    """
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(without_text)


def without_text(record: logging.LogRecord) -> bool:
    """StructuredOutputManager._create_grammar logs the error, GuidanceGrammar.check_error its text."""
    if record.exc_info and record.exc_info[1] is not None:
        record.exc_text = trace(record.exc_info[1])
        record.exc_info = None
    if record.msg == "LLMatcher error: %s":
        record.msg, record.args = "LLMatcher error", ()
    return True

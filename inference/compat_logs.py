"""The part of compat that keeps what a request's schema says, and what was generated, out of vLLM's log."""

import logging

from adapters_store.traces import trace

#: Where a schema is compiled, and where tokens are held against it.
_LOGGERS = (
    "vllm.v1.core.sched.scheduler",
    "vllm.v1.structured_output",
    "vllm.v1.structured_output.backend_guidance",
    "vllm.v1.structured_output.backend_xgrammar",
)
#: What is said of tokens that a grammar does not take, and which of its arguments they are.
_TOKENS = {
    "Failed to advance FSM for request %s for tokens %s. Please file an issue.": 1,
    "Unexpected: grammar rejected tokens %s for request %s. Terminating request.": 0,
    "Unexpected: grammar terminated or rejected draft token %s for request %s during bitmask fill.": 0,
}


def install() -> None:
    """0.26-0.33. A schema that cannot be compiled is logged with the compiler's sentence, which quotes it, and tokens
    that a grammar does not take with their ids. Goes when vLLM logs no more than which request it was.

    xgrammar also prints to standard error by itself, quoting patterns of which it keeps a part: the gateway refuses
    those.
    """
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(without_text)


def without_text(record: logging.LogRecord) -> bool:
    """StructuredOutputManager._create_grammar logs the error, GuidanceGrammar.check_error its text.

    XgrammarGrammar.accept_tokens, StructuredOutputManager.grammar_bitmask and Scheduler.update_from_output log tokens.
    """
    if record.exc_info and record.exc_info[1] is not None:
        record.exc_text = trace(record.exc_info[1])
        record.exc_info = None
    if record.msg == "LLMatcher error: %s":
        record.msg, record.args = "LLMatcher error", ()
    if (tokens := _TOKENS.get(record.msg)) is not None:
        record.args = tuple("…" if at == tokens else value for at, value in enumerate(record.args or ()))
    return True

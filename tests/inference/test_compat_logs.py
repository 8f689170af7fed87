"""vLLM's own code on schemas and what breaks them, with the plugin at work: what its log says of it."""

import pytest

from tests.inference.test_plugin import run

pytestmark = pytest.mark.slow

CANARY = "zanzibar"


def test_a_schema_that_cannot_be_compiled_is_logged_without_what_it_says():
    done = run(f"""
        from types import SimpleNamespace
        from inference import plugin
        plugin.register()
        plugin.require_active()
        from vllm.v1.structured_output import StructuredOutputManager
        from vllm.v1.structured_output.backend_guidance import GuidanceGrammar

        def compile_grammar(*args, **kwargs):
            try:
                raise KeyError("{CANARY}")
            except KeyError:
                raise RuntimeError("Unsupported type {CANARY}")

        manager = SimpleNamespace(backend=SimpleNamespace(compile_grammar=compile_grammar))
        request = SimpleNamespace(
            request_id="request-one",
            sampling_params=None,
            structured_output_request=SimpleNamespace(structured_output_key=("json", "{CANARY}")),
        )
        try:
            StructuredOutputManager._create_grammar(manager, request)
        except RuntimeError:
            pass
        matcher = SimpleNamespace(get_error=lambda: "Invalid type: {CANARY}")
        GuidanceGrammar(ll_matcher=matcher, ll_tokenizer=None, vocab_size=1).check_error()
    """)
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert "Failed to compile grammar for request request-one" in said
    assert "builtins.RuntimeError" in said
    assert "LLMatcher error" in said
    assert CANARY not in said


def test_tokens_that_a_grammar_does_not_take_are_not_in_the_log():
    done = run("""
        from types import SimpleNamespace
        from inference import plugin
        plugin.register()
        plugin.require_active()
        from vllm.v1 import structured_output
        from vllm.v1.core.sched import scheduler
        from vllm.v1.structured_output.backend_xgrammar import XgrammarGrammar

        matcher = SimpleNamespace(accept_token=lambda token: False)
        grammar = XgrammarGrammar(vocab_size=1, matcher=matcher, ctx=None)
        assert not grammar.accept_tokens("request-one", [4711])
        # As they log it, word by word: their sources are what was read.
        structured_output.logger.error(
            "Unexpected: grammar terminated or rejected draft token %s for request %s during bitmask fill.",
            4711,
            "request-two",
        )
        scheduler.logger.error(
            "Unexpected: grammar rejected tokens %s for request %s. Terminating request.", [4711], "request-three"
        )
    """)
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    for request in ("request-one", "request-two", "request-three"):
        assert request in said
    assert "4711" not in said

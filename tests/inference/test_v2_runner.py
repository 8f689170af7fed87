"""vLLM's own V2 execute_model, from the scheduler's output to the adapters it sets, without a model or a GPU.

Everything that a step does about requests and adapters is real: finishing, adding and updating requests, their order in
the batch, the dispatch of graphs, the mapping of tokens. Buffers that want pinned memory are stand-ins, and the step
ends where the adapters are set. Another version is tested by its unpacked wheel in front (0.26 orders its batches in
prepare_inputs, which is a stand-in here): PYTHONPATH=/tmp/vllm-0.33.0 pytest tests/inference/test_v2_runner.py
"""

from types import MethodType, SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

vllm = pytest.importorskip("vllm")


class Buffer:
    """UvaBackedTensor and StagedWriteTensor, as far as a step reads them on the CPU."""

    gpu = None

    def __init__(self, size, **options):
        self.np = np.zeros(size, np.int32)

    def ignore(self, *args):
        pass

    stage_write = stage_write_elem = ignore


class Done(Exception):
    """The adapters are set; what follows is the forward pass."""


class Bench:
    def __init__(self, monkeypatch):
        import torch
        from vllm.v1.worker.gpu import lora_utils, model_runner, states

        from inference import compat_v2

        monkeypatch.setattr(states, "UvaBackedTensor", Buffer)
        monkeypatch.setattr(states, "StagedWriteTensor", Buffer)
        monkeypatch.setattr(states.RequestState, "apply_staged_writes", lambda self: None)
        monkeypatch.setattr(model_runner, "dispatch_cg_and_sync_dp", self._dispatch)
        taught = type("Taught", (lora_utils.LoraState,), {})
        compat_v2.teach(taught)
        self.runner = runner = MagicMock()
        for method in (
            "finish_requests",
            "_remove_request",
            "add_requests",
            "update_requests",
            "gather_batch_req_state",
        ):
            setattr(runner, method, MethodType(getattr(model_runner.GPUModelRunner, method), runner))
        self._execute = model_runner.GPUModelRunner.execute_model
        runner.req_states = states.RequestState(
            max_num_reqs=8,
            max_model_len=4096,
            max_num_batched_tokens=4096,
            num_speculative_steps=0,
            vocab_size=10,
            device=torch.device("cpu"),
        )
        runner.lora_state = taught(8)
        runner.lora_config = SimpleNamespace(max_loras=2)
        runner.decode_query_len = 1
        for absent in (
            "pcp_manager",
            "adaptive_verification",
            "pooling_runner",
            "encoder_cache",
            "pp_handler",
        ):
            setattr(runner, absent, None)
        runner.use_pp = runner.is_encoder_decoder = False
        runner.prepare_inputs = lambda output, state, *rest: SimpleNamespace(
            req_ids=state.req_ids,
            idx_mapping_np=state.idx_mapping_np,
            num_scheduled_tokens=state.num_scheduled_tokens,
        )
        runner.prepare_attn.return_value = (None, None)
        runner._set_active_loras = self._set
        compat_v2.give_states(runner)

    def _dispatch(self, *args, num_active_loras, **kwargs):
        self.dispatched = num_active_loras
        return MagicMock(num_tokens=1), None

    def _set(self, samples, tokens, adapters):
        self.tokens, self.adapters = tokens, {adapter.lora_int_id for adapter in adapters}
        raise Done

    def step(self, scheduled, *, new=(), computed=None, preempted=()):
        """{request: tokens}; `new` requests as the scheduler hands them over. Returns {request: its tokens' ids}."""
        computed = computed or {}
        output = MagicMock(
            num_scheduled_tokens=scheduled,
            total_num_scheduled_tokens=sum(scheduled.values()),
            scheduled_new_reqs=list(new),
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=list(computed),
                num_computed_tokens=list(computed.values()),
                new_block_ids=[None] * len(computed),
            ),
            scheduled_spec_decode_tokens={},
            finished_req_ids=set(),
            preempted_req_ids=set(preempted),
            new_block_ids_to_zero=None,
            kv_cache_block_copies=None,
            scheduled_encoder_inputs={},
        )
        with pytest.raises(Done):
            self._execute(self.runner, output)
        assert self.dispatched == len(self.adapters), "the graph is the one for the adapters that are set"
        tokens, said = iter(self.tokens), {}
        for req_id in self.runner.gather_batch_req_state(output, False)[0].req_ids:
            said[req_id] = [next(tokens) for _ in range(scheduled[req_id])]
        assert next(tokens, None) is None
        return said


def request(req_id, adapter, *, prompt, tokens=None, computed=0, position="ap"):
    """NewRequestData; `tokens` more than the prompt are its own answer, after a preemption."""
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest
    from vllm.v1.core.sched.output import NewRequestData

    return NewRequestData(
        req_id=req_id,
        prompt_token_ids=[5] * prompt,
        mm_features=[],
        sampling_params=SamplingParams(max_tokens=50),
        pooling_params=None,
        block_ids=([],),
        num_computed_tokens=computed,
        lora_request=adapter and LoRARequest(f"{position}-{adapter:064x}", adapter, "/nowhere"),
        prefill_token_ids=[5] * (tokens or prompt),
    )


@pytest.fixture
def bench(monkeypatch):
    return Bench(monkeypatch)


def test_a_prompt_in_chunks_then_generation_without_any_adapter(bench):
    assert bench.step({"a": 4}, new=[request("a", 7, prompt=5)]) == {"a": [7] * 4}
    assert bench.step({"a": 1}, computed={"a": 4}) == {"a": [7]}, "one token, which V2 runs as a decode"
    assert bench.step({"a": 1}, computed={"a": 5}) == {"a": [0]}
    assert bench.dispatched == 0, "the graph without LoRA"


def test_decodes_beside_prompts_base_requests_and_all_positions(bench):
    bench.step(
        {"a": 2, "b": 3, "c": 2},
        new=[
            request("a", 1, prompt=2),
            request("b", None, prompt=3),
            request("c", 2, prompt=2, position="aa"),
        ],
    )
    said = bench.step(
        {"c": 1, "d": 6, "a": 1, "b": 1},
        new=[request("d", 3, prompt=9)],
        computed={"a": 2, "b": 3, "c": 2},
    )
    assert said == {"a": [0], "b": [0], "c": [2], "d": [3] * 6}
    assert bench.adapters == {2, 3}


def test_a_preempted_request_computes_its_answer_as_it_did_before(bench):
    """It comes back as a new one whose prefill is prompt and answer; the adapter ends with the prompt."""
    bench.step({"a": 3}, new=[request("a", 7, prompt=3)])
    bench.step({"a": 1}, computed={"a": 3})
    bench.step({"b": 1}, new=[request("b", None, prompt=1)], preempted=["a"])
    said = bench.step({"a": 5, "b": 1}, new=[request("a", 7, prompt=3, tokens=5)], computed={"b": 1})
    assert said == {"a": [7, 7, 7, 0, 0], "b": [0]}


def test_a_preempted_request_whose_prompt_is_cached_needs_no_adapter(bench):
    """The scheduler hands it over without one then: its slot is not held for it."""
    said = bench.step({"a": 2}, new=[request("a", None, prompt=3, tokens=6, computed=4)])
    assert said == {"a": [0, 0]}
    assert bench.dispatched == 0

"""V2's own LoraState and dispatch, taught the rule, driven with numpy: no GPU and no model behind them.

Other versions' sources are tested as well where they are unpacked: their lora_utils.py needs only what every version
has, so it runs on top of the installed vLLM.

    python -m zipfile -e vllm-0.33.0-….whl /tmp/vllm-0.33.0
    VLLM_SOURCES=/tmp/vllm-0.33.0:/tmp/vllm-0.26.0 pytest tests/inference/test_compat_v2.py

The states that the model runner gives to LoraState are stand-ins: RequestState's arrays want pinned memory. In
test_v2_runner they are real.
"""

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

vllm = pytest.importorskip("vllm")
SOURCES = [
    Path(vllm.__file__).parents[1],
    *map(Path, filter(None, os.environ.get("VLLM_SOURCES", "").split(":"))),
]
SLOTS = 4


def _taught(source: Path):
    """A version's module, loaded under a name of its own, so that nobody else sees what is changed in it."""
    from inference import compat_v2

    path = source / "vllm" / "v1" / "worker" / "gpu" / "lora_utils.py"
    spec = importlib.util.spec_from_file_location(f"lora_utils_of_{source.name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    compat_v2.teach(module.LoraState)
    return module


MODULES = {source.name: _taught(source) for source in SOURCES}
every_version = pytest.mark.parametrize("version", MODULES)


class Runner:
    """What of V2's model runner LoraState meets; requests sit at indices that are not their place in the batch."""

    def __init__(self, version, size=8):
        from inference import compat_v2

        self.module = MODULES[version]
        self.lora_state = self.module.LoraState(size)
        self.req_states = SimpleNamespace(
            req_id_to_index={},
            prompt_len=SimpleNamespace(np=np.zeros(size, np.int32)),
            num_computed_tokens_np=np.zeros(size, np.int32),
        )
        compat_v2.give_states(self)

    def add(self, req_id, index, adapter, *, prompt, computed=0):
        from vllm.lora.request import LoRARequest

        request = adapter and LoRARequest(adapter, int(adapter[3:], 16) + 1, "/nowhere")
        self.req_states.req_id_to_index[req_id] = index
        self.req_states.prompt_len.np[index] = prompt
        self.req_states.num_computed_tokens_np[index] = computed
        self.lora_state.add_request(req_id, index, request)

    def step(self, scheduled):
        """{request: tokens} in the batch's order to (token ids, sampled ids, adapter names); dispatch agrees."""
        ids = list(scheduled)
        rows = np.array([self.req_states.req_id_to_index[req_id] for req_id in ids], np.intp)
        counts = np.array(list(scheduled.values()), np.int32)
        samples, tokens, adapters = self.lora_state.make_lora_inputs(ids, rows, counts)
        # Dispatch gets the requests in the scheduler's order, before the batch is sorted.
        assert self.dispatch(reversed(ids)) == len(adapters)
        assert {adapter.lora_int_id for adapter in adapters} == {*tokens} - {0}
        return list(tokens), list(samples), {adapter.lora_name for adapter in adapters}

    def dispatch(self, ids, dummy_run=False):
        config = SimpleNamespace(max_loras=SLOTS)
        return self.module.get_num_active_loras_for_dispatch(config, self.lora_state, list(ids), dummy_run)


def name(index, position="ap"):
    return f"{position}-{index:064x}"


@every_version
def test_generated_tokens_need_no_adapter_and_no_graph_with_lora(version):
    runner = Runner(version)
    runner.add("decode", 3, name(0), prompt=10, computed=10)
    runner.add("base", 1, None, prompt=5, computed=7)
    assert runner.step({"decode": 1, "base": 1}) == ([0, 0], [0, 0], set())
    assert runner.dispatch(["decode", "base"]) == 0


@every_version
def test_a_mixed_step(version):
    runner = Runner(version)
    runner.add("decode", 3, name(0), prompt=10, computed=10)
    runner.add("all", 0, name(1, "aa"), prompt=2, computed=9)
    runner.add("chunk", 5, name(2), prompt=100, computed=50)
    runner.add("base", 1, None, prompt=5)
    tokens, samples, adapters = runner.step({"all": 1, "decode": 1, "chunk": 3, "base": 2})
    assert tokens == [2, 0, 3, 3, 3, 0, 0]
    assert samples == [2, 0, 3, 0]
    assert adapters == {name(1, "aa"), name(2)}


@every_version
def test_a_one_token_rest_of_a_prompt_is_adapted_although_it_runs_as_a_decode(version):
    runner = Runner(version)
    runner.add("rest", 2, name(0), prompt=300, computed=299)
    assert runner.step({"rest": 1}) == ([1], [1], {name(0)})
    runner.add("one", 2, name(0), prompt=1)
    assert runner.step({"one": 1}) == ([1], [1], {name(0)})


@every_version
def test_a_resumed_request_computes_its_own_answer_without_the_adapter(version):
    """prefill_len is 16 here, prompt_len 10: V2 calls all 16 tokens prefill."""
    runner = Runner(version)
    runner.add("resumed", 2, name(0), prompt=10)
    assert runner.step({"resumed": 16})[0] == [1] * 10 + [0] * 6
    runner.add("hit", 4, name(0), prompt=10, computed=12)
    assert runner.step({"hit": 4}) == ([0] * 4, [0], set())


@every_version
def test_an_index_forgets_its_former_request(version):
    runner = Runner(version)
    runner.add("first", 2, name(0), prompt=3, computed=3)
    runner.lora_state.remove_request("first")
    runner.add("second", 2, name(1, "aa"), prompt=3, computed=3)
    assert runner.step({"second": 1})[0] == [2]
    runner.lora_state.remove_request("second")
    runner.add("third", 2, None, prompt=3)
    assert runner.step({"third": 3}) == ([0, 0, 0], [0], set())


@every_version
def test_warm_up_and_capture_are_untouched(version):
    runner = Runner(version)
    assert runner.dispatch(["made-up"], dummy_run=True) == SLOTS + 1
    config = SimpleNamespace(max_loras=SLOTS, specialize_active_lora=False)
    cases = runner.module.get_lora_capture_cases(config, SimpleNamespace(cudagraph_specialize_lora=True))
    assert cases == [0, SLOTS + 1], "one graph without LoRA, one with"


requests = st.lists(
    st.tuples(st.sampled_from([None, "ap", "aa"]), st.integers(1, 12), st.integers(0, 20), st.integers(1, 9)),
    min_size=1,
    max_size=8,
)


@every_version
@settings(deadline=None)
@given(requests, st.randoms(use_true_random=False))
def test_every_token_of_every_step_follows_the_rule(version, drawn, random):
    runner = Runner(version)
    indices = random.sample(range(8), len(drawn))
    expected = []
    for number, (position, prompt, computed, scheduled) in enumerate(drawn):
        adapter = position and name(number, position)
        runner.add(str(number), indices[number], adapter, prompt=prompt, computed=computed)
        expected += [
            number + 1 if position == "aa" or (position == "ap" and at < prompt) else 0
            for at in range(computed, computed + scheduled)
        ]
    scheduled = {str(number): row[3] for number, row in enumerate(drawn)}
    assert runner.step(scheduled)[0] == expected

"""Slots through vLLM's own scheduler, with no model behind it: who may run beside whom, and who holds a slot."""

from types import SimpleNamespace

import pytest

from inference.scheduling import needs_adapter

BLOCK = 32
vllm = pytest.importorskip("vllm")


def test_the_rule():
    running = {"running": True, "prompt_length": 10}
    assert needs_adapter(position="prefill", computed=9, **running)
    assert not needs_adapter(position="prefill", computed=10, **running)
    assert needs_adapter(position="all", computed=500, **running)
    assert needs_adapter(position="prefill", running=False, computed=10, prompt_length=10)


def name(index, position="ap"):
    return f"{position}-{index:064x}"


class Bench:
    """A scheduler; every step pretends that the model sampled token 7 where it had to."""

    def __init__(self, kind="Scheduler", *, blocks=1000, budget=4096, slots=2, at_once=16):
        from inference import plugin

        plugin.register()
        plugin.require_active()
        from vllm.v1.core.sched import async_scheduler, scheduler

        kind = {"Scheduler": scheduler.Scheduler, "AsyncScheduler": async_scheduler.AsyncScheduler}[kind]
        self.scheduler = _scheduler(kind, blocks=blocks, budget=budget, slots=slots, at_once=at_once)
        self.scheduler.attune_residency = SimpleNamespace(admit=self._admit)
        self.verdicts = {}

    def _admit(self, adapter, *, step, running):
        from inference.residency import Verdict

        return self.verdicts.get(adapter.lora_name, Verdict.READY), "because"

    def add(self, request_id, prompt, adapter=None, *, count=50, number=None):
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest
        from vllm.v1.request import Request

        lora = adapter and LoRARequest(adapter, number or int(adapter[3:], 16) + 1, "/nowhere")
        params = SamplingParams(max_tokens=count, ignore_eos=True)
        request = Request(
            request_id=request_id,
            prompt_token_ids=[5] * prompt,
            sampling_params=params,
            pooling_params=None,
            lora_request=lora,
        )
        self.scheduler.add_request(request)
        return request

    def step(self):
        """One step; returns the ids of the requests that it computed."""
        from vllm.v1.outputs import ModelRunnerOutput

        scheduled = self.scheduler.schedule()
        ids = list(scheduled.num_scheduled_tokens)
        sampled = []
        for request_id in ids:
            request = self.scheduler.requests[request_id]
            done = request.num_computed_tokens >= request.num_tokens + request.num_output_placeholders
            sampled.append([7] if done else [])
        self.outputs = self.scheduler.update_from_output(
            scheduled,
            ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={request_id: index for index, request_id in enumerate(ids)},
                sampled_token_ids=sampled,
            ),
        )
        return ids


def _scheduler(kind, *, blocks, budget, slots, at_once):
    import torch
    from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
    from vllm.config.lora import LoRAConfig
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    from tests.inference.conftest import ROOT

    model = ROOT / ".attune" / "models" / "smollm2-135m-instruct"
    if not model.exists():
        pytest.skip("there is no base model: run `make setup`")
    config = VllmConfig(
        scheduler_config=SchedulerConfig(
            max_num_seqs=at_once,
            max_num_batched_tokens=budget,
            max_model_len=4096,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
        ),
        model_config=ModelConfig(model=str(model), dtype="float32", max_model_len=4096),
        cache_config=CacheConfig(block_size=BLOCK, enable_prefix_caching=False),
        device_config=DeviceConfig("cpu"),
        lora_config=LoRAConfig(max_loras=slots, max_lora_rank=8, lora_dtype=torch.float32),
    )
    config.cache_config.num_gpu_blocks = blocks
    spec = FullAttentionSpec(block_size=BLOCK, num_kv_heads=1, head_size=1, dtype=torch.float32)
    kv = KVCacheConfig(
        num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)]
    )
    return kind(
        vllm_config=config,
        kv_cache_config=kv,
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
        hash_block_size=BLOCK,
        log_stats=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Scheduler", "AsyncScheduler"])
def test_more_adapters_run_than_there_are_slots(kind):
    bench = Bench(kind)
    for index in range(8):
        bench.add(str(index), 40, name(index))
    assert bench.step() == ["0", "1"]
    assert bench.step() == ["0", "1", "2", "3"]
    bench.step()
    assert bench.step() == [str(index) for index in range(8)], "all decode at once, with 2 slots"


def test_all_position_adapters_keep_their_slots():
    bench = Bench()
    for index in range(3):
        bench.add(str(index), 40, name(index, "aa"))
    bench.add("ordinary", 40, name(9))
    for _ in range(3):
        assert bench.step() == ["0", "1"]


def test_an_all_position_adapter_and_prompts_share_the_slots():
    bench = Bench()
    bench.add("all", 40, name(0, "aa"))
    for index in range(1, 4):
        bench.add(str(index), 40, name(index))
    assert bench.step() == ["all", "1"]
    assert bench.step() == ["all", "1", "2"]
    assert bench.step() == ["all", "1", "2", "3"]


def test_a_chunked_prompt_holds_its_slot_until_its_last_chunk():
    bench = Bench(budget=64)
    long = bench.add("long", 150, name(0))
    for _ in range(2):
        bench.step()
        assert long.lora_request is not None
    bench.step()
    assert long.num_computed_tokens == 150
    assert long.lora_request is None


def test_base_requests_need_no_slot():
    bench = Bench()
    for index in range(2):
        bench.add(f"all{index}", 40, name(index, "aa"))
    for index in range(3):
        bench.add(f"base{index}", 40)
    assert len(bench.step()) == 5


def test_preemption_gives_the_adapter_back_and_takes_a_slot_again():
    """7 blocks for two requests that want 5 and 6: the second yields when both need their fourth."""
    bench = Bench(blocks=8)
    first, second = bench.add("first", 90, name(0), count=60), bench.add("second", 90, name(1), count=90)
    bench.step()
    bench.step()
    assert first.lora_request is None
    assert second.lora_request is None
    for _ in range(10):
        bench.step()
        if second.num_preemptions:
            break
    assert second.num_preemptions == 1
    assert second.lora_request is not None, "its prompt is to be computed again"
    assert first.lora_request is None
    for _ in range(70):
        bench.step()
    assert first.is_finished()
    assert second.num_computed_tokens > second.num_prompt_tokens
    assert second.lora_request is None


@pytest.mark.parametrize("after", [1, 3])
def test_an_abort_frees_slot_and_request(after):
    from vllm.v1.request import RequestStatus

    bench = Bench()
    for index in range(3):
        bench.add(str(index), 40, name(index, "aa"))
    for _ in range(after):
        assert bench.step() == ["0", "1"]
    bench.scheduler.finish_requests("0", RequestStatus.FINISHED_ABORTED)
    assert bench.step() == ["1", "2"]


def test_a_request_whose_adapter_is_not_ready_waits_and_lets_others_pass():
    from inference.residency import Verdict

    bench = Bench()
    bench.verdicts[name(0)] = Verdict.READING
    bench.add("cold", 40, name(0))
    bench.add("warm", 40, name(1))
    assert bench.step() == ["warm"]
    bench.verdicts.clear()
    assert bench.step() == ["warm", "cold"]


def test_a_request_whose_adapter_cannot_be_loaded_ends_with_an_error_alone():
    from vllm.v1.engine import FinishReason

    from inference.residency import Verdict

    bench = Bench()
    bench.verdicts[name(0)] = Verdict.FAILED
    bench.add("broken", 40, name(0))
    bench.add("sound", 40, name(1))
    assert bench.step() == ["sound"]
    finished = {
        out.request_id: out.finish_reason for out in bench.outputs[0].outputs if out.finish_reason is not None
    }
    assert finished == {"broken": FinishReason.ERROR}
    assert bench.step() == ["sound"]


HOT = {
    "prompts that are cut": {"slots": 1, "budget": 64, "position": "ap"},
    "all positions": {"slots": 2, "budget": 4096, "position": "aa"},
}


class Rush:
    """Requests for as many hot adapters as there are slots, without end, and one for another adapter among the first.

    Prompts of 96 and then 64 tokens in steps of 64 always leave a half to the next step, which the next one fills up.
    Requests with all-position adapters live for 12 steps, and a new one comes in every second.
    """

    def __init__(self, bench, *, slots, position):
        self.bench, self.slots, self.position = bench, slots, position
        self.count = 0
        for _ in range(2 * slots):
            self.arrive()
        self.cold = bench.add("cold", 40, name(99))

    def arrive(self):
        prompt, count = (64 if self.count else 96, 1) if self.position == "ap" else (100, 12)
        adapter = name(self.count % self.slots, self.position)
        self.bench.add(f"hot{self.count}", prompt, adapter, count=count)
        self.count += 1

    def steps(self, limit):
        """The requests of each step, until the cold one runs."""
        taken = []
        while len(taken) < limit and "cold" not in (taken[-1] if taken else ()):
            if len(self.bench.scheduler.waiting) < 4:
                self.arrive()
            taken.append(self.bench.step())
        return taken


def rush(hot):
    position = HOT[hot]["position"]
    limits = {key: value for key, value in HOT[hot].items() if key != "position"}
    return Rush(Bench(**limits), slots=limits["slots"], position=position)


@pytest.mark.parametrize("hot", HOT)
def test_vllm_by_itself_lets_hot_adapters_starve_the_others(hot, monkeypatch):
    """Why there is a Line. When this fails, vLLM's requests age by themselves, and Line can go."""
    from inference.scheduling import Line

    monkeypatch.setattr(Line, "PATIENCE", float("inf"))
    taken = rush(hot).steps(300)
    assert len(taken) == 300
    assert all(ids for ids in taken)


@pytest.mark.parametrize("hot", HOT)
def test_hot_adapters_starve_nobody(hot):
    from inference.scheduling import Line

    crowd = rush(hot)
    taken = crowd.steps(300)
    assert "cold" in taken[-1]
    overtaking = {id for ids in taken for id in ids} - {"cold"} - {f"hot{i}" for i in range(2 * crowd.slots)}
    assert overtaking, "sharing an adapter with those who run costs nobody anything, for a while"
    assert len(taken) <= Line.PATIENCE + 2 * 12, "patience, and then those who run come to their ends"
    crowd.bench.scheduler.finish_requests("cold", _aborted())
    assert any("hot" in id for id in crowd.bench.step()), "and it goes on"


def _aborted():
    from vllm.v1.request import RequestStatus

    return RequestStatus.FINISHED_ABORTED


def test_who_has_waited_too_long_is_in_nobodys_way_who_needs_no_slot_or_when_it_is_gone():
    from inference.scheduling import Line

    bench = Bench(at_once=100)
    for index in range(2):
        bench.add(f"all{index}", 40, name(index, "aa"), count=500)
    bench.add("first", 40, name(9))
    for step in range(Line.PATIENCE):
        bench.add(f"friend{step}", 40, name(0, "aa"), count=500)
        assert f"friend{step}" in bench.step()
    bench.add("friend", 40, name(0, "aa"))
    bench.add("base", 40)
    ids = bench.step()
    assert "base" in ids
    assert not {"first", "friend"} & set(ids)
    bench.scheduler.finish_requests("first", _aborted())
    assert "friend" in bench.step()


def test_a_full_memory_makes_one_wait_like_full_slots_and_a_slow_disk_does_not():
    from inference.residency import Verdict
    from inference.scheduling import Line

    for verdict, overtakes in ((Verdict.FULL, False), (Verdict.READING, True)):
        bench = Bench(at_once=100)
        bench.verdicts[name(9)] = verdict
        bench.add("first", 40, name(9))
        for step in range(Line.PATIENCE):
            bench.add(str(step), 40, name(0))
            assert str(step) in bench.step()
        bench.add("next", 40, name(0))
        assert ("next" in bench.step()) is overtakes
        bench.verdicts.clear()
        ids = bench.step()
        assert "first" in ids
        assert "next" in ids


@pytest.mark.slow
def test_512_streams_with_512_adapters_on_8_slots():
    """With the real ledger of 64 places in memory: eight prompts a step, in order, and then all decode at once."""
    from inference.residency import Residency

    bench = Bench(blocks=512 * 5, slots=8, at_once=512)
    read = []
    bench.scheduler.attune_residency = Residency(
        capacity=64,
        max_bytes=1,
        load=lambda adapter, drop: read.append(adapter.lora_int_id) or [{"state": "ready", "bytes": 0}],
        prefetch=lambda adapter: [{"state": "ready"}],
    )
    for index in range(512):
        bench.add(str(index), 40, name(index), count=80)
    for step in range(64):
        ids = bench.step()
        assert ids == [str(index) for index in range(8 * (step + 1))]
    assert len(bench.step()) == 512
    assert len(read) == 512, "each adapter is read once, when its turn is near"


def test_a_streaming_session_is_refused():
    from inference.engine_checks import check_not_resumable

    adapter = SimpleNamespace(lora_name=name(0))
    with pytest.raises(ValueError, match="streaming-input session"):
        check_not_resumable(SimpleNamespace(resumable=True, lora_request=adapter))
    check_not_resumable(SimpleNamespace(resumable=False, lora_request=adapter))
    check_not_resumable(
        SimpleNamespace(resumable=True, lora_request=SimpleNamespace(lora_name=name(0, "aa")))
    )

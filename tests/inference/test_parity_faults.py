"""Adapters that are broken, wrong or gone fail their own request; the engine and everybody else go on."""

import json
import shutil
import time

import numpy as np
import pytest

from tests.inference.adapters import random_adapter
from tests.inference.engine import Engine, Question

pytestmark = pytest.mark.engine

PROMPT = list(range(500, 540))


@pytest.fixture
def make(tmp_path, base):
    made = iter(range(1000))
    return lambda **options: random_adapter(
        tmp_path / str(seed := next(made)),
        base=base,
        seed=100 + seed,
        **{"method": "direft", "position": "prefill"} | options,
    )


def flip_a_byte(adapter):
    path = adapter.folder / "adapter_model.safetensors"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)


def remove(adapter):
    shutil.rmtree(adapter.folder)


def truncate(adapter):
    path = adapter.folder / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])


def lose_the_manifest(adapter):
    (adapter.folder / "manifest.json").unlink()


@pytest.mark.parametrize("harm", [flip_a_byte, remove, truncate, lose_the_manifest])
def test_a_broken_adapter_fails_its_own_request(engine: Engine, reference, make, harm):
    broken, sound = make(), make()
    harm(broken)
    questions = [Question(PROMPT, sound, 8), Question(PROMPT, broken, 8), Question(PROMPT, None, 8)]
    engine.ask(questions)
    assert [q.finish for q in questions] == ["length", "error", "length"]
    assert questions[1].answer == []
    for question in (questions[0], questions[2]):
        assert reference.two_phase(PROMPT, question.answer, question.adapter).agrees(question.answer)


def test_a_rank_over_the_limit_is_refused_by_the_engine(engine: Engine, make):
    questions = [Question(PROMPT, make(rank=32), 4), Question(PROMPT, None, 4)]
    engine.ask(questions)
    assert [q.finish for q in questions] == ["error", "length"]


def test_an_adapter_of_another_width_never_reaches_a_slot(engine: Engine, make, tmp_path):
    from adapters_store.weights import adapter_write
    from tests.inference.reference import Adapter

    good = make()
    narrow = {
        name: array[..., :500] if name.endswith("direft_A.weight") else array
        for name, array in good.tensors.items()
    }
    m = good.manifest
    manifest = adapter_write(
        tmp_path / "narrow", tensors=narrow, config={}, base=m.base, method=m.method, position=m.position,
        rank=m.rank, scale=m.scale, training={},
    )  # fmt: skip
    question = Question(PROMPT, Adapter(manifest, narrow, tmp_path / "narrow"), 4)
    engine.ask([question, Question(PROMPT, good, 4)])
    assert question.finish == "error"


def test_an_adapter_gone_from_disk_is_served_from_memory_while_it_is_there(engine: Engine, make):
    adapter = make()
    first, second = Question(PROMPT, adapter, 8), Question(PROMPT, adapter, 8)
    engine.ask([first])
    remove(adapter)
    engine.ask([second])
    assert second.finish == "length"
    assert first.answer == second.answer
    engine.ask([Question(PROMPT, make(), 4) for _ in range(6)])
    third, base = Question(PROMPT, adapter, 8), Question(PROMPT, None, 8)
    engine.ask([third, base])
    assert [third.finish, base.finish] == ["error", "length"], "evicted, and its files are gone"


def test_prefetch_reads_ahead_in_the_workers(engine: Engine, make):
    adapter, broken = make(), make()
    flip_a_byte(broken)

    def ask(target):
        for _ in range(1000):
            (answer,) = engine.llm.collective_rpc("attune_prefetch", args=(target.name, str(target.folder)))
            if answer["state"] != "loading":
                return answer
            time.sleep(0.03)
        raise AssertionError("still loading")

    assert ask(broken)["code"] == "adapter_corrupt"
    assert ask(adapter) == {"state": "ready"}
    remove(adapter)
    question = Question(PROMPT, adapter, 4)
    engine.ask([question])
    assert question.finish == "length"
    assert adapter.name in engine.llm.collective_rpc("attune_status")[0]["adapters"]


def test_what_a_prompt_needs_is_removed_once_it_has_ended(engine: Engine, make):
    adapter = make(position="all")
    engine.begin("needs", Question(PROMPT, adapter, 8))
    assert engine.core.attune_remove(adapter.name) == {"memory": 0, "slots": 0, "in_use": 1}, (
        "it waits for it"
    )
    engine.llm.llm_engine.step()
    assert engine.core.attune_remove(adapter.name) == {"memory": 0, "slots": 0, "in_use": 1}
    finish = None
    while engine.llm.llm_engine.has_unfinished_requests():
        finish = [output.outputs[0].finish_reason for output in engine.llm.llm_engine.step()]
    assert finish == ["length"]
    assert engine.core.attune_remove(adapter.name) == {"memory": 1, "slots": 1, "in_use": 0}
    assert engine.core.attune_remove(adapter.name) == {"memory": 0, "slots": 0, "in_use": 0}
    assert adapter.name not in engine.llm.collective_rpc("attune_status")[0]["adapters"]


def test_what_is_pinned_outlives_its_files_and_all_others(engine: Engine, make):
    adapter = make()
    lora = engine.lora(adapter)
    assert engine.core.attune_pin(lora.lora_int_id, adapter.name, str(adapter.folder)) == {"state": "ready"}
    remove(adapter)
    engine.ask([Question(PROMPT, make(), 1) for _ in range(7)])
    question = Question(PROMPT, adapter, 4)
    engine.ask([question])
    assert question.finish == "length"
    assert engine.core.attune_unpin(adapter.name)
    engine.ask([Question(PROMPT, make(), 1) for _ in range(7)])
    engine.ask([question])
    assert question.finish == "error"


def test_adapters_that_nobody_read_ahead_are_read_in_the_background(engine: Engine, make, monkeypatch):
    """While another runs, whose prompt is the first; more at once than are read ahead, and each is answered."""
    from inference.compat_admission import residency_of

    residency, said = residency_of(engine.core), {}
    prefetch = residency._prefetch

    def noted(adapter):
        answers = prefetch(adapter)
        said.setdefault(adapter.lora_name, []).append(answers[0]["state"])
        return answers

    monkeypatch.setattr(residency, "_prefetch", noted)
    cold = [Question(PROMPT, make(), 4) for _ in range(5)]
    engine.ask([Question(PROMPT, None, 60), *cold])
    assert [question.finish for question in cold] == ["length"] * 5
    assert set(said) == {question.adapter.name for question in cold}
    for states in said.values():
        assert states[0] == "loading"
        assert states[-1] == "ready"


def test_memory_is_counted_in_bytes(engine: Engine, make):
    """Six places: what is in them is six adapters of 30 layers, whose float32 tensors are as many bytes in memory."""
    adapters = [make() for _ in range(3)] + [
        make(method="lora", modules=("self_attn.q_proj",)) for _ in range(3)
    ]
    for adapter in adapters:
        engine.ask([Question(PROMPT, adapter, 1)])
    expected = sum(
        array.astype("float32").nbytes for adapter in adapters for array in adapter.tensors.values()
    )
    assert engine.llm.collective_rpc("attune_status")[0]["bytes"] == expected


def test_bytes_push_out_who_was_not_needed_longest(engine: Engine, reference, make, monkeypatch):
    """Room for two adapters and the one that is being read; whoever had to go comes back for its next question."""
    adapters = [make(method="lora") for _ in range(4)]
    (size,) = {
        sum(array.astype("float32").nbytes for array in adapter.tensors.values()) for adapter in adapters
    }
    monkeypatch.setattr(engine.core.scheduler.attune_residency, "_max_bytes", 2 * size)
    for _ in range(2):
        questions = [Question(PROMPT, adapter, 4) for adapter in adapters]
        for question in questions:
            engine.ask([question])
            assert engine.llm.collective_rpc("attune_status")[0]["bytes"] <= 3 * size
            checked = reference.two_phase(PROMPT, question.answer, question.adapter)
            assert checked.agrees(question.answer)
    held = engine.llm.collective_rpc("attune_status")[0]["adapters"]
    assert adapters[0].name not in held
    assert adapters[3].name in held


def test_a_plain_peft_lora_acts_everywhere(engine: Engine, reference, make, tmp_path):
    """Any name that is not ours is ordinary vLLM; a subset of targets, rank 4, alpha by PEFT's own config."""
    from safetensors.numpy import save_file
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest

    ours = make(
        method="lora", position="all", rank=4, modules=("self_attn.q_proj", "self_attn.v_proj", "mlp.up_proj")
    )
    folder = tmp_path / "plain"
    folder.mkdir()
    save_file(
        {name: np.ascontiguousarray(a) for name, a in ours.tensors.items()},
        folder / "adapter_model.safetensors",
    )
    config = {
        "peft_type": "LORA",
        "r": 4,
        "lora_alpha": 32,
        "target_modules": ["q_proj", "v_proj", "up_proj"],
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    out = engine.llm.generate(
        [{"prompt_token_ids": PROMPT}],
        SamplingParams(temperature=0, max_tokens=20, ignore_eos=True),
        lora_request=LoRARequest("sql-lora", 900, str(folder)),
        use_tqdm=False,
    )
    answer = list(out[0].outputs[0].token_ids)
    assert reference.two_phase(PROMPT, answer, ours).agrees(answer)
    base = Question(PROMPT, None, 20)
    engine.ask([base])
    assert base.answer != answer


@pytest.mark.parametrize("rslora", [False, True])
def test_a_plain_peft_lora_has_its_own_rank_and_scale_at_every_site(
    engine: Engine, reference, tmp_path, rslora
):
    """What PEFT made of its patterns, and computes, is what vLLM serves."""
    import torch
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(
        r=4,
        lora_alpha=8,
        target_modules=["q_proj", "v_proj", "up_proj"],
        rank_pattern={"v_proj": 12, "layers.3.self_attn.q_proj": 1},
        alpha_pattern={"up_proj": 24, "layers.1.self_attn.v_proj": 2},
        use_rslora=rslora,
    )
    request = plain_request("patterns", 902 + rslora, tmp_path)
    model = get_peft_model(reference.model, config)
    try:
        scales = {module.scaling["default"] for module in model.modules() if hasattr(module, "lora_A")}
        assert len(scales) > 3
        torch.manual_seed(1)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.06)
        model.save_pretrained(tmp_path)
        [answer] = generate(engine, request, 12)
        adapted = reference.two_phase(PROMPT, answer, None)  # PEFT's layers are in the reference's model
    finally:
        model.unload()
    assert adapted.agrees(answer)
    assert len(adapted.sure) > 6
    assert not reference.two_phase(PROMPT, answer, None).agrees(answer), "it does nothing"


@pytest.mark.parametrize(
    "options", [{"use_dora": True}, {"modules_to_save": ["lm_head"]}, {"alora_invocation_tokens": [1, 2]}]
)
def test_a_plain_folder_of_another_method_fails_its_own_request(engine: Engine, make, options):
    """It would be served as the LoRA that it is not; test_engine_checks has the sentences."""
    folder = make(method="lora", position="all").folder
    (folder / "manifest.json").unlink()
    config = json.loads((folder / "adapter_config.json").read_text()) | options
    (folder / "adapter_config.json").write_text(json.dumps(config))
    assert generate(engine, plain_request("other", 904, folder), 4) == [[]]


def plain_request(name: str, number: int, folder):
    from vllm.lora.request import LoRARequest

    return LoRARequest(name, number, str(folder))


def generate(engine: Engine, request, count: int) -> list[list[int]]:
    from vllm import SamplingParams

    outputs = engine.llm.generate(
        [{"prompt_token_ids": PROMPT}],
        SamplingParams(temperature=0, max_tokens=count, ignore_eos=True),
        lora_request=request,
        use_tqdm=False,
    )
    return [list(output.outputs[0].token_ids) for output in outputs]


def test_our_folder_under_another_name_is_refused(engine: Engine, make):
    """It would act everywhere: ordinary names mean ordinary adapters."""
    from vllm import SamplingParams
    from vllm.lora.request import LoRARequest

    out = engine.llm.generate(
        [{"prompt_token_ids": PROMPT}],
        SamplingParams(temperature=0, max_tokens=4),
        lora_request=LoRARequest("my-own-name", 901, str(make().folder)),
        use_tqdm=False,
    )
    assert out[0].outputs[0].finish_reason == "error"

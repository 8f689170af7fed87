"""What a trainer has now is what the engine answers with: new weights under the same id, old KV out of reach."""

import numpy as np
import pytest
from peft import LoraConfig, get_peft_model

from adapters_store.errors import AdapterError, AdapterUnsupported
from inference.weight_sync import Recipe, SyncRefused, recipe_of, sync_to_engine, tensors_sync
from tests.inference.adapters import Adapter, random_adapter
from tests.inference.engine import BLOCK, Engine
from tests.training_jobs.tiny import tiny_model
from training_jobs.attach.adapter import adapter_attach
from training_jobs.messages import Recipe as TrainersRecipe

#: Far from the ids that the session's engine gives out.
ID = 10_000


@pytest.fixture
def make(tmp_path, base):
    """A DiReFT_P or LoRA_P adapter by its seed: what training makes of the same sites from step to step."""

    def make(method: str, seed: int, **options) -> Adapter:
        folder = tmp_path / f"{method}-{seed}"
        return random_adapter(folder, base=base, method=method, position="prefill", seed=seed, **options)

    return make


@pytest.fixture
def synced(engine: Engine):
    """Requests of this test, forgotten at its end: what is in no file is kept for ever otherwise."""
    requests = []
    yield requests
    for request in requests:
        engine.core.attune_remove(request.lora_name)


def answer(engine: Engine, prompt: list[int], request) -> list[int]:
    from vllm import SamplingParams

    [output] = engine.llm.generate(
        [{"prompt_token_ids": prompt}],
        SamplingParams(temperature=0, max_tokens=6, ignore_eos=True),
        lora_request=request,
        use_tqdm=False,
    )
    return list(output.outputs[0].token_ids)


def recipe(adapter: Adapter) -> Recipe:
    m = adapter.manifest
    return Recipe(m.method, m.position, m.rank, m.scale)


def prompt_of(seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(100, 32_000, BLOCK + 5).tolist()


@pytest.mark.engine
@pytest.mark.parametrize("method", ["lora", "direft"])
def test_the_engine_answers_with_the_new_weights(engine: Engine, trainer, reference, make, synced, method):
    prompt = prompt_of(1)
    for seed in (50, 51):
        adapter = make(method, seed)
        trainer.attach(adapter)
        request = sync_to_engine(trainer.model, engine.llm, adapter_id=ID)
        synced.append(request)
        assert request.lora_name == adapter.name, "a name is what its folder's would be"
        hits = engine.counter("prefix_cache_hits")
        said = answer(engine, prompt, request)
        assert engine.counter("prefix_cache_hits") == hits, "KV of other weights was taken for these"
        assert answer(engine, prompt, request) == said
        assert engine.counter("prefix_cache_hits") - hits == BLOCK, "its own KV is found"
    assert reference.two_phase(prompt, said, adapter).agrees(said)
    before, after = synced
    assert before.lora_int_id == after.lora_int_id
    assert answer(engine, prompt, before) == [], "the old name is refused"


@pytest.mark.engine
def test_missing_and_extra_tensors_change_nothing(engine: Engine, make, synced):
    adapter, other, wide = make("direft", 50), make("direft", 51), make("direft", 52, rank=16)
    last = max(name.partition("direft_")[0] for name in other.tensors)
    fewer = {name: array for name, array in other.tensors.items() if not name.startswith(last)}
    torn = {name: array for name, array in other.tensors.items() if name != f"{last}direft_A.bias"}

    def sync(tensors, like, adapter_id=ID):
        synced.append(tensors_sync(tensors, recipe(like), engine.llm, adapter_id=adapter_id))

    sync(adapter.tensors, adapter)
    sync(fewer, other, ID + 1)
    prompt = prompt_of(2)
    said = answer(engine, prompt, synced[0])
    for tensors, like, adapter_id, code, words in (
        (fewer, other, ID, "adapter_mismatch", r"lacks .* and 1 more"),
        (other.tensors, other, ID + 1, "adapter_mismatch", r"has .* and 1 more"),
        (wide.tensors, wide, ID, "adapter_mismatch", r"lacks .*\[8, "),
        (torn, other, ID, "adapter_corrupt", "lacks one of its parts"),
        ({**other.tensors, "extra": np.ones(8)}, other, ID, "adapter_corrupt", "'extra'"),
    ):
        with pytest.raises(AdapterError, match=words) as refused:
            sync(tensors, like, adapter_id)
        assert refused.value.code == code
    engine.forget_prefixes()
    assert answer(engine, prompt, synced[0]) == said


@pytest.mark.engine
def test_an_adapter_that_is_being_answered_with_is_left_alone(engine: Engine, make, synced):
    from vllm import SamplingParams

    first, second = make("direft", 50), make("direft", 51)
    synced.append(tensors_sync(first.tensors, recipe(first), engine.llm, adapter_id=ID))
    running, prompt = engine.llm.llm_engine, {"prompt_token_ids": prompt_of(3)}
    running.add_request("held", prompt, SamplingParams(max_tokens=4), lora_request=synced[0])
    running.step()
    with pytest.raises(SyncRefused, match="1 requests") as refused:
        tensors_sync(second.tensors, recipe(second), engine.llm, adapter_id=ID)
    assert refused.value.code == "adapter_in_use"
    while running.has_unfinished_requests():
        running.step()
    synced.append(tensors_sync(second.tensors, recipe(second), engine.llm, adapter_id=ID))
    assert synced[-1].lora_name == second.name


@pytest.mark.parametrize(("method", "position"), [("lora", "all"), ("lora", "prefill"), ("loreft", "all")])
def test_the_recipe_is_read_from_the_model(method, position):
    asked = TrainersRecipe(method=method, position=position, rank=4, alpha=6)
    scale = 6 / 4 if method == "lora" else 4**-0.5
    assert recipe_of(adapter_attach(tiny_model(), asked, seed=0)) == Recipe(method, position, 4, scale)


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights .pissa."),
        ({"init_lora_weights": "olora"}, "init_lora_weights .olora."),
        ({"alora_invocation_tokens": [1]}, "aLoRA"),
    ],
)
def test_what_is_no_plain_lora_is_refused_by_name(option, says):
    plain = {"r": 4, "target_modules": {"q_proj", "v_proj"}, "task_type": "CAUSAL_LM"}
    recipe_of(get_peft_model(tiny_model(), LoraConfig(**plain)))
    with pytest.raises(AdapterUnsupported, match=says):
        recipe_of(get_peft_model(tiny_model(), LoraConfig(**plain, **option)))


def test_what_has_no_one_scale_is_refused():
    plain = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj"]}
    ranked = get_peft_model(tiny_model(), LoraConfig(**plain, use_rslora=True))
    assert recipe_of(ranked) == Recipe("lora", "all", 4, 4.0)
    with pytest.raises(AdapterUnsupported, match="alpha_pattern"):
        recipe_of(get_peft_model(tiny_model(), LoraConfig(**plain, alpha_pattern={"v_proj": 2})))

"""What an engine refuses to start with, and the sentence that it says."""

import json
from types import SimpleNamespace

import pytest
import torch

from adapters_store.architectures import PROVEN
from adapters_store.errors import AdapterCorrupt, AdapterUnsupported
from inference.architectures import LAYERS
from inference.compat_table import LAYER_FORWARDS
from inference.engine_checks import Unservable, check_config, check_folder, check_plain_options
from inference.residual import SITE


def config(**changes):
    """What preft_engine_args() leads to on CUDA; changes by the name of the part, e.g. lora={"max_loras": 1}."""
    parts = {
        "lora": {
            "target_modules": ["q_proj", SITE],
            "fully_sharded_loras": False,
            "lora_dtype": torch.bfloat16,
            "specialize_active_lora": False,
        },
        "parallel": {
            "world_size": 1,
            "pipeline_parallel_size": 1,
            "data_parallel_size": 1,
            "_api_process_count": 1,
        },
        "model": {"quantization": None},
    }
    top = {"kv_transfer": None, "kv_events": None, "speculative": None}
    return SimpleNamespace(
        use_v2_model_runner=changes.pop("v2", True),
        **{f"{part}_config": changes.pop(part, value) for part, value in top.items()},
        **{
            f"{part}_config": SimpleNamespace(**values | changes.pop(part, {}))
            for part, values in parts.items()
        },
    )


def model(name="LlamaForCausalLM"):
    return type(name, (), {})()


def test_what_is_proven_was_read():
    assert set(LAYERS) >= PROVEN


@pytest.mark.parametrize("architecture", sorted(PROVEN))
def test_every_layer_that_gets_a_site_is_compared_with_its_source(architecture):
    layer = check_config(config(), model(architecture), platform="cuda")
    assert f"{layer}.forward" in LAYER_FORWARDS


def test_both_runners_serve_on_cuda_and_v1_on_a_cpu():
    on_cpu = {"v2": False, "lora": {"lora_dtype": torch.float32}}
    assert check_config(config(v2=False), model(), platform="cuda")
    assert check_config(config(**on_cpu), model(), platform="cpu")
    with pytest.raises(Unservable, match=r"On a CPU .* V1 model runner"):
        check_config(config(), model(), platform="cpu")


def test_on_a_cpu_too_only_what_is_proven_is_served():
    """Which tests.inference.test_regimes does for the first two."""
    for proven in ({"speculative": SimpleNamespace(method="ngram")}, {"parallel": {"world_size": 2}}):
        assert check_config(config(v2=False, **proven), model(), platform="cpu")
    for changes, sentence in (
        ({"speculative": SimpleNamespace(method="eagle")}, "by n-grams alone, not by eagle"),
        ({"parallel": {"pipeline_parallel_size": 2}}, "pipeline or data parallelism"),
        ({"parallel": {"data_parallel_size": 2}}, "pipeline or data parallelism"),
    ):
        with pytest.raises(Unservable, match=sentence):
            check_config(config(v2=False, **changes), model(), platform="cpu")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"lora": {"target_modules": None}}, "lm_head or embed_tokens"),
        ({"lora": {"target_modules": ["lm_head"]}}, "lm_head or embed_tokens"),
        ({"lora": {"fully_sharded_loras": True}}, "fully_sharded_loras"),
        ({"lora": {"lora_dtype": torch.float32}}, r"float16 and bfloat16, not torch\.float32"),
        ({"lora": {"specialize_active_lora": True}}, "specialize_active_lora"),
        ({"parallel": {"world_size": 2}}, "one engine a GPU"),
        ({"parallel": {"data_parallel_size": 2}}, "one engine a GPU"),
        ({"parallel": {"_api_process_count": 2}}, "--api-server-count 1"),
        ({"speculative": object()}, "Speculative decoding"),
        ({"kv_transfer": object()}, "KV connectors"),
        ({"kv_events": SimpleNamespace(enable_kv_cache_events=True)}, "KV events"),
    ],
)
def test_what_is_not_proven_is_refused_by_name(changes, sentence):
    with pytest.raises(Unservable, match=sentence):
        check_config(config(**changes), model(), platform="cuda")


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_every_quantised_base_is_refused_by_name(platform):
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS

    assert {"awq", "fp8", "compressed-tensors"} <= set(QUANTIZATION_METHODS)
    for method in QUANTIZATION_METHODS:
        with pytest.raises(Unservable, match=rf"quantised \({method}\)"):
            check_config(config(model={"quantization": method}), model(), platform=platform)


def test_other_platforms_are_refused_by_name():
    with pytest.raises(Unservable, match="not on rocm"):
        check_config(config(), model(), platform="rocm")


def test_an_architecture_that_was_not_proven_serves_lora_alone():
    with pytest.raises(Unservable, match=r"OPTForCausalLM .* leave 'residual_stream' out"):
        check_config(config(), model("OPTForCausalLM"), platform="cuda")
    lora_alone = config(lora={"target_modules": ["q_proj"]})
    assert check_config(lora_alone, model("OPTForCausalLM"), platform="cuda") is None


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"rank_pattern": {"q_proj": 4}}, "rank_pattern"),
        ({"rank_pattern": {"q_proj": 4}, "alpha_pattern": {"q_proj": 4}}, "rank_pattern, alpha_pattern"),
    ],
)
def test_what_vllm_0_26_would_read_past_is_refused(tmp_path, options, named):
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps({"r": 8, "rank_pattern": {}, "init_lora_weights": True}))
    check_plain_options(tmp_path)
    file.write_text(json.dumps({"r": 8, **options}))
    with pytest.raises(AdapterUnsupported, match=f"ignores {named} of"):
        check_plain_options(tmp_path)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"alora_invocation_tokens": [1, 2]}, "aLoRA"),
        ({"modules_to_save": ["lm_head"], "bias": "all"}, "bias, modules_to_save"),
        ({"lora_bias": True, "layer_replication": [[0, 1]]}, "layer_replication, lora_bias"),
        ({"init_lora_weights": "pissa_niter_4"}, r"init_lora_weights \(pissa_niter_4\)"),
        ({"peft_type": "IA3"}, "this is IA3"),
    ],
)
def test_a_plain_folder_is_a_loras_or_refused_by_name(tmp_path, options, named):
    file = tmp_path / "adapter_config.json"
    lora = {"peft_type": "LORA", "r": 8, "bias": "none", "modules_to_save": None, "use_rslora": True}
    file.write_text(json.dumps(lora | {"rank_pattern": {"q_proj": 4}}))
    check_folder(tmp_path, "any")
    file.write_text(json.dumps(lora | options))
    with pytest.raises(AdapterUnsupported, match=named):
        check_folder(tmp_path, "any")


@pytest.mark.parametrize("text", ["[]", "{", "[" * 100_000])
def test_a_plain_folders_options_are_an_object(tmp_path, text):
    (tmp_path / "adapter_config.json").write_text(text)
    with pytest.raises(AdapterCorrupt, match=r"adapter_config\.json"):
        check_folder(tmp_path, "any")

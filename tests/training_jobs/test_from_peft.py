"""A LoRA that stock PEFT saved is an adapter of ours for all positions, and the other way round."""

import json
import subprocess
import sys

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file

from adapters_store.errors import AdapterCorrupt, AdapterMissing, AdapterUnsupported
from adapters_store.from_peft import adapter_import, main
from adapters_store.manifest import CONFIG_FILE, TENSORS_FILE
from adapters_store.weights import adapter_read
from tests.training_jobs.test_mask import TOLERANCE
from tests.training_jobs.test_peft_citizens import BASE, STOCK, TOKENS, logits
from tests.training_jobs.tiny import tiny_folder, tiny_model
from training_jobs.attach.adapter import adapter_load


def stock(folder, *, dtype=torch.float32, **options):
    """What PEFT alone makes and saves."""
    torch.manual_seed(5)
    config = {"r": 4, "target_modules": ["q_proj", "down_proj"], "init_lora_weights": False, **options}
    model = get_peft_model(tiny_model(), LoraConfig(**config)).eval()
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.to(dtype).float()
    model.save_pretrained(folder)
    return model


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"lora_alpha": 3, "use_rslora": True},
        {"layers_to_transform": [1]},
        {"target_modules": r".*layers\.(0\.self_attn\.k_proj|1\.mlp\.up_proj)"},
    ],
    ids=["plain", "rslora", "a layer", "a pattern"],
)
def test_it_computes_the_same_and_goes_back(tmp_path, options):
    theirs = stock(tmp_path / "stock", **options)
    manifest = adapter_import(tmp_path / "stock", tmp_path / "ours", base=BASE)
    assert manifest.name.startswith("aa-"), "without a position it acts on every token"
    ours, read = adapter_load(tiny_model(), tmp_path / "ours")
    assert read == manifest
    with torch.no_grad():
        expected = theirs(input_ids=TOKENS).logits
        assert (expected - tiny_model()(input_ids=TOKENS).logits).abs().max() > 0.05
        torch.testing.assert_close(ours.eval()(input_ids=TOKENS).logits, expected, **TOLERANCE)
    torch.testing.assert_close(logits(ours), expected, **TOLERANCE)
    again = PeftModel.from_pretrained(tiny_model(), tmp_path / "ours").eval()
    again.save_pretrained(tmp_path / "again")
    before, after = (load_file(tmp_path / name / TENSORS_FILE) for name in ("stock", "again"))
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor, atol=0, rtol=0)
    torch.testing.assert_close(logits(again), expected, atol=0, rtol=0)


@pytest.mark.parametrize("rslora", [False, True])
def test_patterns_and_their_scales_become_part_of_b(tmp_path, rslora):
    theirs = stock(
        tmp_path / "stock",
        target_modules=["q_proj", "v_proj", "up_proj"],
        rank_pattern={"v_proj": 6, r"layers\.1\.self_attn\.q_proj": 1},
        alpha_pattern={"up_proj": 24, "layers.1.self_attn.v_proj": 2},
        use_rslora=rslora,
    )
    manifest = adapter_import(tmp_path / "stock", tmp_path / "ours", base=BASE)
    assert (manifest.rank, manifest.scale) == (6, 1.0)
    with torch.no_grad():
        expected = theirs(input_ids=TOKENS).logits
    ours, _ = adapter_load(tiny_model(), tmp_path / "ours")
    torch.testing.assert_close(logits(ours), expected, **TOLERANCE)
    again = PeftModel.from_pretrained(tiny_model(), tmp_path / "ours").eval()
    torch.testing.assert_close(logits(again), expected, **TOLERANCE)


@pytest.mark.parametrize("options", [{"lora_alpha": None}, {"lora_alpha": 0}, {"alpha_pattern": {"(": 2}}])
def test_a_lora_without_a_scale(tmp_path, options):
    stock(tmp_path / "stock")
    path = tmp_path / "stock" / CONFIG_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | options))
    with pytest.raises(AdapterCorrupt, match=r"q_proj no scale|down_proj no scale"):
        adapter_import(tmp_path / "stock", tmp_path / "ours", base=BASE)


@pytest.mark.slow
def test_a_peft_that_has_never_heard_of_us_takes_it(tmp_path):
    tiny_model().save_pretrained(tmp_path / "base")
    stock(tmp_path / "stock")
    adapter_import(tmp_path / "stock", tmp_path / "ours", base=BASE)
    command = [sys.executable, "-c", STOCK, str(tmp_path / "base"), str(tmp_path / "ours")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "taken\n"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_read_as_it_is(tmp_path, dtype):
    from safetensors.torch import save_file

    stock(tmp_path / "stock", dtype=dtype)
    path = tmp_path / "stock" / TENSORS_FILE
    whole = load_file(path)
    save_file({name: tensor.to(dtype) for name, tensor in whole.items()}, path)
    adapter_import(tmp_path / "stock", tmp_path / "ours", base=BASE)
    _, arrays = adapter_read(tmp_path / "ours")
    for name, tensor in whole.items():
        torch.testing.assert_close(torch.from_numpy(arrays[name]), tensor, atol=0, rtol=0)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"use_dora": True}, "DoRA"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"alora_invocation_tokens": [1]}, "aLoRA"),
        ({"bias": "all"}, "bias"),
        ({"lora_bias": True}, "lora_bias"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights"),
        ({"position": "prefill"}, "position"),
        ({"some_option_of_tomorrow": 1}, "some_option_of_tomorrow"),
        ({"peft_type": "IA3"}, "IA3"),
    ],
)
def test_what_is_no_plain_lora_is_refused_by_name(tmp_path, changed, says):
    stock(tmp_path / "stock")
    path = tmp_path / "stock" / CONFIG_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(AdapterUnsupported, match=says):
        adapter_import(tmp_path / "stock", tmp_path / "ours", base=BASE)
    assert not (tmp_path / "ours").exists()


def test_what_peft_itself_saves_of_others_is_refused(tmp_path):
    stock(tmp_path / "head", target_modules=["q_proj", "lm_head"])
    stock(tmp_path / "dora", use_dora=True)
    for folder, says in (("head", "lm_head"), ("dora", "use_dora")):
        with pytest.raises(AdapterUnsupported, match=says):
            adapter_import(tmp_path / folder, tmp_path / "ours", base=BASE)


@pytest.mark.parametrize(
    ("first", "says"),
    [(None, "lacks one of its parts"), (torch.ones(4), "dimensions")],
    ids=["no A", "a flat A"],
)
@pytest.mark.parametrize("patterns", [{}, {"rank_pattern": {"down_proj": 6}}], ids=["plain", "patterns"])
def test_a_site_that_is_not_whole(tmp_path, patterns, first, says):
    from safetensors.torch import save_file

    stock(tmp_path / "stock", **patterns)
    path = tmp_path / "stock" / TENSORS_FILE
    tensors = load_file(path)
    name = next(name for name in tensors if name.endswith("lora_A.weight"))
    del tensors[name]
    save_file(tensors if first is None else tensors | {name: first}, path)
    with pytest.raises(AdapterCorrupt, match=says):
        adapter_import(tmp_path / "stock", tmp_path / "ours", base=BASE)


def test_folders_that_are_not_whole(tmp_path):
    with pytest.raises(AdapterMissing, match=CONFIG_FILE):
        adapter_import(tmp_path, tmp_path / "ours", base=BASE)
    stock(tmp_path / "stock")
    (tmp_path / "stock" / TENSORS_FILE).write_bytes(b"x" * 100)
    with pytest.raises(AdapterCorrupt, match="safetensors"):
        adapter_import(tmp_path / "stock", tmp_path / "ours", base=BASE)
    (tmp_path / "stock" / TENSORS_FILE).unlink()
    with pytest.raises(AdapterMissing, match=TENSORS_FILE):
        adapter_import(tmp_path / "stock", tmp_path / "ours", base=BASE)
    (tmp_path / "stock" / CONFIG_FILE).write_text("[]")
    with pytest.raises(AdapterCorrupt, match="object"):
        adapter_import(tmp_path / "stock", tmp_path / "ours", base=BASE)


def test_by_command(tmp_path, capsys):
    base = tiny_folder(tmp_path / "base")
    stock(tmp_path / "stock")
    options = ["--base", str(base), "--out", str(tmp_path / "ours")]
    main([str(tmp_path / "stock"), *options])
    manifest, _ = adapter_read(tmp_path / "ours")
    assert manifest.name in capsys.readouterr().out
    assert manifest.base.name == "base"
    with pytest.raises(SystemExit):
        main([str(tmp_path / "stock"), *options])
    assert "is there already" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="adapter_not_found"):
        main([str(tmp_path / "nowhere"), "--base", str(base), "--out", str(tmp_path / "other")])

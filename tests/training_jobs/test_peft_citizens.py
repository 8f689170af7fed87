"""The methods behave as PEFT's own do, and an adapter's folder is the same thing to both."""

import json
import subprocess
import sys

import pytest
import torch
from peft import PeftModel, get_peft_model

from adapters_store.attached import tensors_get
from adapters_store.manifest import BaseRef
from adapters_store.preft.orthonormal import orthonormal_rows
from tests.training_jobs.adapters import PREFILL, RECIPES, disturbed, name
from tests.training_jobs.test_mask import TOLERANCE, ids, labels_of
from tests.training_jobs.tiny import tiny_model
from training_jobs.attach.adapter import (
    adapter_attach,
    adapter_detach,
    adapter_load,
    adapter_save,
)
from training_jobs.attach.reft import DireftConfig
from training_jobs.messages import Recipe

BASE = BaseRef(digest="0" * 64, name="tiny")
TOKENS = ids(14)
LABELS = labels_of(TOKENS, 6)


@torch.no_grad()
def logits(model) -> torch.Tensor:
    return model(input_ids=TOKENS, labels=LABELS).logits


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_a_fresh_adapter_changes_nothing_and_is_all_that_trains(recipe):
    expected = logits(tiny_model())
    model = adapter_attach(tiny_model(), recipe, seed=3)
    torch.testing.assert_close(logits(model.eval()), expected, atol=0, rtol=0)
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    assert trained
    assert all(any(part in n for part in ("lora_", "direft_", "loreft_")) for n in trained)


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_disable_adapter_is_the_base_model_and_needs_no_mask(recipe):
    model = disturbed(tiny_model(), recipe)
    with model.disable_adapter(), torch.no_grad():
        plain = model(input_ids=TOKENS).logits
    torch.testing.assert_close(plain, logits(tiny_model()), atol=0, rtol=0)
    assert (logits(model) - plain).abs().max() > 0.05


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_detach_leaves_the_base_as_it_was(recipe):
    base = tiny_model()
    names = set(base.state_dict())
    adapter_detach(disturbed(base, recipe))
    assert set(base.state_dict()) == names
    with torch.no_grad():
        torch.testing.assert_close(base(input_ids=TOKENS).logits, logits(tiny_model()), atol=0, rtol=0)
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in base.modules())


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_save_pretrained_and_from_pretrained(recipe, tmp_path):
    model = disturbed(tiny_model(), recipe)
    model.save_pretrained(tmp_path)
    again = PeftModel.from_pretrained(tiny_model(), tmp_path).eval()
    torch.testing.assert_close(logits(again), logits(model), atol=0, rtol=0)


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_an_adapter_folder_and_back(recipe, tmp_path):
    model = disturbed(tiny_model(), recipe)
    manifest = adapter_save(model, tmp_path, recipe=recipe, base=BASE, training={"steps": 1})
    assert manifest.name.startswith("ap-" if recipe.position == "prefill" else "aa-")
    again, read = adapter_load(tiny_model(), tmp_path)
    assert read == manifest
    torch.testing.assert_close(logits(again.eval()), logits(model), **TOLERANCE)
    by_peft = PeftModel.from_pretrained(tiny_model(), tmp_path).eval()
    torch.testing.assert_close(logits(by_peft), logits(model), **TOLERANCE)
    peft_type = json.loads((tmp_path / "adapter_config.json").read_text())["peft_type"]
    expected = {"lora": "PREFT_LORA" if recipe.position == "prefill" else "LORA"}
    assert peft_type == expected.get(recipe.method, recipe.method.upper())


@pytest.mark.parametrize("position", ["prefill", "all"])
def test_a_lora_of_some_projections_and_back(position, tmp_path):
    recipe = Recipe(method="lora", position=position, rank=4, target_modules=("up_proj", "q_proj", "q_proj"))
    assert recipe.target_modules == ("q_proj", "up_proj"), "each once, in one order"
    model = disturbed(tiny_model(), recipe)
    manifest = adapter_save(model, tmp_path, recipe=recipe, base=BASE, training={})
    assert {name.split(".")[-3] for name in manifest.tensors} == {"q_proj", "up_proj"}
    again, _ = adapter_load(tiny_model(), tmp_path)
    torch.testing.assert_close(logits(again.eval()), logits(model), **TOLERANCE)
    by_peft = PeftModel.from_pretrained(tiny_model(), tmp_path).eval()
    torch.testing.assert_close(logits(by_peft), logits(model), **TOLERANCE)


STOCK = """
import sys
from peft import PeftModel
from transformers import LlamaForCausalLM
for folder in sys.argv[2:]:
    try:
        PeftModel.from_pretrained(LlamaForCausalLM.from_pretrained(sys.argv[1]), folder)
        print("taken")
    except Exception as error:
        print("refused:", error)
"""


@pytest.mark.slow
def test_stock_peft_takes_all_position_lora_and_refuses_prefill_lora(tmp_path):
    tiny_model().save_pretrained(tmp_path / "base")
    for position in ("all", "prefill"):
        recipe = Recipe(method="lora", position=position, rank=4)
        adapter_save(
            disturbed(tiny_model(), recipe), tmp_path / position, recipe=recipe, base=BASE, training={}
        )
    folders = [str(tmp_path / part) for part in ("base", "all", "prefill")]
    command = [sys.executable, "-c", STOCK, *folders]
    taken, refused = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert taken == "taken"
    assert refused.startswith("refused:")
    assert "PREFT_LORA" in refused


@pytest.mark.parametrize("recipe", PREFILL, ids=name)
def test_merging_raises(recipe):
    model = disturbed(tiny_model(), recipe)
    for merge in (model.merge_and_unload, model.merge_adapter):
        with pytest.raises(NotImplementedError, match="cannot be merged"):
            merge()


@pytest.mark.parametrize("recipe", PREFILL, ids=name)
def test_mixed_adapter_batches_raise(recipe):
    model = disturbed(tiny_model(), recipe)
    with pytest.raises(ValueError, match="adapter_names"):
        model(input_ids=TOKENS, labels=LABELS, adapter_names=["default"])


def test_a_bfloat16_base_keeps_float32_adapters():
    for recipe in PREFILL:
        model = disturbed(tiny_model().to(torch.bfloat16), recipe)
        assert {p.dtype for p in model.parameters() if p.requires_grad} == {torch.float32}
        assert logits(model).dtype == torch.bfloat16


def test_loreft_stays_orthonormal_and_direft_has_both_starts():
    model = disturbed(tiny_model(), Recipe(method="loreft", position="prefill", rank=4))
    for key, tensor in tensors_get(model).items():
        if key.endswith("loreft_R.weight"):
            torch.testing.assert_close(tensor @ tensor.T, torch.eye(4), **TOLERANCE)
            torch.testing.assert_close(orthonormal_rows(tensor), tensor, **TOLERANCE)
    for init, zero, orthonormal in (("B", "direft_B", "direft_A"), ("A", "direft_A", "direft_B")):
        layer = get_peft_model(tiny_model(), DireftConfig(r=4, init=init)).get_base_model().model.layers[0]
        assert not getattr(layer, zero)["default"].weight.any()
        matrix = getattr(layer, orthonormal)["default"].weight
        matrix = matrix if matrix.shape[0] == 4 else matrix.T
        torch.testing.assert_close(matrix @ matrix.T, torch.eye(4), **TOLERANCE)


def test_a_rank_beyond_the_models_width_is_refused():
    with pytest.raises(ValueError, match="Rank 33"):
        adapter_attach(tiny_model(), Recipe(method="loreft", position="all", rank=33), seed=0)

"""A plain PEFT LoRA, imported: PEFT and our own formula compute with the new folder what PEFT does with the old one."""

import json
import sys

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from adapters_store.errors import AdapterCorrupt, AdapterMissing, AdapterUnsupported
from adapters_store.weights import adapter_read
from inference import adapter_import
from inference.adapter_checks import RankTooHigh, served_base
from inference.adapter_import import lora_import
from tests.inference.adapters import Adapter
from tests.inference.architectures import write_model
from tests.inference.reference import Reference

TOKENS = list(range(20, 31))


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "llama"
    write_model(folder, "llama")
    return folder


def peft_folder(base, folder, **options):
    """A LoRA of random numbers as PEFT saves it; returns the logits [tokens, vocabulary] that it leads to."""
    torch.manual_seed(1)
    config = LoraConfig(
        **{"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "up_proj"]} | options
    )
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), config).eval()
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    return logits(model)


@torch.no_grad()
def logits(model):
    return model(torch.tensor([TOKENS])).logits[0]


@pytest.mark.parametrize("rslora", [False, True])
def test_it_computes_the_same(base, tmp_path, rslora):
    expected = peft_folder(
        base,
        tmp_path / "peft",
        rank_pattern={"v_proj": 12, r"layers\.1\.self_attn\.q_proj": 1},
        alpha_pattern={"up_proj": 24, "layers.1.self_attn.v_proj": 2},
        use_rslora=rslora,
    )
    manifest = lora_import(tmp_path / "peft", tmp_path / "ours", served_base(base, max_rank=12))
    assert (manifest.method, manifest.position, manifest.rank) == ("lora", "all", 12)
    reference = Reference(base)
    _, tensors = adapter_read(tmp_path / "ours", expected_digest=manifest.digest)
    ours = reference.two_phase(TOKENS[:1], [*TOKENS[1:], 0], Adapter(manifest, tensors, tmp_path / "ours"))
    torch.testing.assert_close(ours.logits, expected, atol=1e-3, rtol=1e-4)
    assert (expected - logits(reference.model)).abs().max() > 1
    again = PeftModel.from_pretrained(reference.model, tmp_path / "ours").eval()
    torch.testing.assert_close(logits(again), expected, atol=1e-3, rtol=1e-4)


def test_what_cannot_be_served_is_refused_with_the_reason(base, tmp_path, monkeypatch, capsys):
    peft_folder(base, tmp_path / "peft")
    served = served_base(base, max_rank=8)
    with pytest.raises(AdapterMissing, match=r"adapter_config\.json"):
        lora_import(tmp_path, tmp_path / "ours", served)
    with pytest.raises(RankTooHigh, match=r"rank 4; .* up to 2"):
        lora_import(tmp_path / "peft", tmp_path / "ours", served_base(base, max_rank=2))
    config = tmp_path / "peft" / "adapter_config.json"
    plain = json.loads(config.read_text())
    config.write_text(json.dumps(plain | {"use_dora": True}))
    with pytest.raises(AdapterUnsupported, match="DoRA"):
        lora_import(tmp_path / "peft", tmp_path / "ours", served)
    command = ["", str(tmp_path / "peft"), "--base", str(base), "--out", str(tmp_path / "new")]
    monkeypatch.setattr(sys, "argv", command)
    assert adapter_import.main() == 1
    assert "DoRA is not served" in capsys.readouterr().err
    config.write_text(json.dumps(plain | {"lora_alpha": "much"}))
    with pytest.raises(AdapterCorrupt, match=r"gives .*_proj no scale"):
        lora_import(tmp_path / "peft", tmp_path / "ours", served)
    assert not (tmp_path / "ours").exists()
    assert not (tmp_path / "new").exists()
    config.write_text(json.dumps(plain))
    assert adapter_import.main() == 0
    assert capsys.readouterr().out.strip() == adapter_read(tmp_path / "new")[0].name
    (tmp_path / "peft" / "adapter_model.safetensors").write_bytes(b"nothing")
    with pytest.raises(AdapterCorrupt, match="safetensors"):
        lora_import(tmp_path / "peft", tmp_path / "ours", served)

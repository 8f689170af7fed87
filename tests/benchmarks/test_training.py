"""The benchmark's ratios and that its four kinds train on one base; the figures are for quiet machines."""

from argparse import Namespace

import torch

from benchmarks.training import PAIRS, batches, seconds_a_step, table
from tests.training_jobs.tiny import tiny_model


def test_every_kind_steps_and_leaves_the_base_as_it_was():
    model = tiny_model()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    data = batches(Namespace(steps=1, batch=2, tokens=8), vocabulary=model.config.vocab_size)
    for kind in (kind for pair in PAIRS for kind in pair):
        assert seconds_a_step(model, kind, data) > 0
    after = model.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_ratios_are_paired_by_round():
    rounds = [
        {"LoRA_P": 1.0, "LoRA (PEFT's own)": 1.0, "DiReFT_P": 1.0, "DiReFT": 2.0},
        {"LoRA_P": 2.4, "LoRA (PEFT's own)": 2.0, "DiReFT_P": 2.0, "DiReFT": 2.0},
        {"LoRA_P": 1.1, "LoRA (PEFT's own)": 1.0, "DiReFT_P": 1.0, "DiReFT": 1.0},
    ]
    text = table(rounds)
    assert "| LoRA_P | LoRA (PEFT's own) | 1.10 | 1.100 | 1.000 to 1.200 |" in text
    assert "| DiReFT_P | DiReFT | 1.00 | 1.000 | 0.500 to 1.000 |" in text

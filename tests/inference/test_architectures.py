"""Every proven architecture: one pass is two phases, and what is trained on it is what the engine takes for it.

`python -m tests.inference.architectures` is the proof itself, with an engine for each; this is what stays true without.
"""

import json
from collections import Counter

import pytest
import torch

from adapters_store.architectures import PROVEN
from adapters_store.manifest import BaseRef
from adapters_store.preft.config import PROJECTIONS
from adapters_store.sites import sites_of
from inference.adapter_checks import check_servable, served_base
from tests.inference.adapters import random_adapter
from tests.inference.architectures import KINDS, MODELS, architecture_of, write_model
from tests.inference.reference import Reference
from tests.inference.trainer_side import TrainerSide
from training_jobs.attach.adapter import adapter_save
from training_jobs.messages import Recipe

PROMPT, ANSWER = list(range(20, 31)), list(range(40, 52))
MODELS_OF_PROVEN = [name for name in MODELS if architecture_of(name) in PROVEN]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS_OF_PROVEN)
def test_the_trainer_computes_in_one_pass_what_is_served_in_two_phases(name, tmp_path):
    base = tmp_path / name
    write_model(base, name)
    assert json.loads((base / "config.json").read_text())["architectures"] == [architecture_of(name)]
    served, reference, trainer = served_base(base, max_rank=8), Reference(base), TrainerSide(base)
    ref = BaseRef(digest=served.digest, name=served.name)
    plain = reference.two_phase(PROMPT, ANSWER, None).logits
    for method, position in KINDS:
        adapter = random_adapter(tmp_path / "random", base=base, method=method, position=position, seed=1)
        two_phase = reference.two_phase(PROMPT, ANSWER, adapter).logits
        one_pass = trainer.one_pass(PROMPT, ANSWER, adapter).logits
        torch.testing.assert_close(one_pass, two_phase, atol=1e-3, rtol=1e-4)
        assert (two_phase - plain).abs().max() > 0.1, "the adapter does nothing"
        recipe = Recipe(method=method, position=position, rank=8)
        trained = adapter_save(trainer.model, tmp_path / "trained", recipe=recipe, base=ref, training={})
        check_servable(trained, served)
        sites = Counter(site.module for site in sites_of(trained))
        assert sites == dict.fromkeys(PROJECTIONS if method == "lora" else [""], served.layers)


def test_every_proven_architecture_has_a_model():
    assert {architecture_of(name) for name in MODELS_OF_PROVEN} == PROVEN

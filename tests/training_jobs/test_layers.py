"""Adapters of some decoder layers alone: trained, saved, loaded and counted as those of all of them."""

import pytest
import torch
from peft import PeftModel
from pydantic import ValidationError

from adapters_store.attached import tensors_get
from adapters_store.sites import sites_of
from tests.training_jobs.adapters import RECIPES, disturbed, name
from tests.training_jobs.test_mask import TOLERANCE, ids, labels_of, two_phases
from tests.training_jobs.test_peft_citizens import BASE, LABELS, TOKENS, logits
from tests.training_jobs.tiny import tiny_model
from tests.training_jobs.trainings import examples, run_of
from training_jobs.attach.adapter import adapter_attach, adapter_load, adapter_save, adapters_attach
from training_jobs.attach.chosen import RowAdapters
from training_jobs.footprint import footprint
from training_jobs.messages import Recipe

LAYERS = (0, 2)
SOME = [recipe.model_copy(update={"layers": LAYERS}) for recipe in RECIPES]
PREFILL = [recipe for recipe in SOME if recipe.position == "prefill"]


def layers_of(model) -> set[int]:
    return {int(key.split(".layers.")[1].split(".")[0]) for key in tensors_get(model)}


@pytest.mark.parametrize("recipe", SOME, ids=name)
def test_the_chosen_layers_are_adapted_and_no_others(recipe):
    model = disturbed(tiny_model(layers=4), recipe)
    assert layers_of(model) == set(LAYERS)
    assert (logits(model) - logits(tiny_model(layers=4))).abs().max() > 0.05


@pytest.mark.parametrize("recipe", SOME, ids=name)
def test_a_folder_and_back(recipe, tmp_path):
    model = disturbed(tiny_model(layers=4), recipe)
    manifest = adapter_save(model, tmp_path, recipe=recipe, base=BASE, training={})
    assert {site.layer for site in sites_of(manifest)} == set(LAYERS)
    again, _ = adapter_load(tiny_model(layers=4), tmp_path)
    torch.testing.assert_close(logits(again.eval()), logits(model), **TOLERANCE)
    by_peft = PeftModel.from_pretrained(tiny_model(layers=4), tmp_path).eval()
    torch.testing.assert_close(logits(by_peft), logits(model), **TOLERANCE)


@pytest.mark.parametrize("recipe", PREFILL, ids=name)
def test_one_pass_equals_two_phases(recipe):
    model, tokens = disturbed(tiny_model(layers=4), recipe), ids(12)
    with torch.no_grad():
        one_pass = model(input_ids=tokens, labels=labels_of(tokens, 5)).logits
    torch.testing.assert_close(one_pass, two_phases(model, tokens, 5), **TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", SOME, ids=name)
def test_they_learn(recipe, tmp_path):
    model = adapter_attach(tiny_model(layers=4), recipe, seed=1)
    made = examples()
    trained = run_of(model, tmp_path, examples=made).train()
    assert trained.held_out_after < trained.held_out_before
    assert layers_of(model) == set(LAYERS)


@pytest.mark.parametrize("recipe", PREFILL, ids=name)
def test_each_row_through_its_own(recipe):
    model = adapters_attach(tiny_model(layers=4), recipe, seeds={"ann": 1, "bob": 2})
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if parameter.requires_grad and ".bob." in key:
                parameter += 0.1
        both = model(
            input_ids=TOKENS.repeat(2, 1),
            labels=LABELS.repeat(2, 1),
            row_adapters=RowAdapters.of(["ann", "bob"], torch.device("cpu")),
        ).logits
    torch.testing.assert_close(both[:1], logits(tiny_model(layers=4)), **TOLERANCE)
    assert (both[1] - both[0]).abs().max() > 0.05


@pytest.mark.parametrize("recipe", RECIPES, ids=name)
def test_a_layer_that_the_base_lacks_is_refused(recipe):
    beyond = recipe.model_copy(update={"layers": (0, 4)})
    for attach in (
        lambda: adapter_attach(tiny_model(layers=4), beyond, seed=0),
        lambda: adapters_attach(tiny_model(layers=4), beyond, seeds={"ann": 0}),
    ):
        with pytest.raises(ValueError, match="no layer 4: its 4 layers are 0 to 3"):
            attach()


def test_the_same_choice_is_the_same_recipe():
    recipe = {"method": "direft", "position": "prefill", "rank": 4}
    assert Recipe(**recipe, layers=(2, 0, 2)) == Recipe(**recipe, layers=(0, 2))
    for wrong in ((), (-1,), (0, 1000)):
        with pytest.raises(ValidationError, match="layers"):
            Recipe(**recipe, layers=wrong)


@pytest.mark.parametrize("recipe", PREFILL[:2], ids=name)
def test_fewer_and_higher_layers_need_less_memory(recipe):
    made = examples().train

    def needs(layers):
        chosen = recipe.model_copy(update={"layers": layers})
        model = adapter_attach(tiny_model(layers=4), chosen, seed=1)
        return footprint(model, trained=made, scored=made, checkpointing=False)

    every, lower, upper = needs(None), needs((0, 1)), needs((2, 3))
    assert every.trained_row > lower.trained_row > upper.trained_row
    assert every.fixed > lower.fixed == upper.fixed

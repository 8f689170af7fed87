"""Memory estimated before the start: near what a training takes, and what comes of it when less is free."""

import ctypes
import gc
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.training_jobs.adapters import PREFILL, name
from tests.training_jobs.test_memory import rows_of
from tests.training_jobs.tiny import tiny_model
from tests.training_jobs.trainings import HYPERPARAMETERS, Recorder, run_of, train
from training_jobs import free_memory
from training_jobs.attach.adapter import adapter_attach
from training_jobs.errors import PassingFault, UserFault
from training_jobs.examples import Examples
from training_jobs.footprint import Footprint, footprint, parts_that_fit
from training_jobs.free_memory import Memory, memory_now

pytestmark = pytest.mark.slow  # it trains

#: docs/training.md says so.
FACTOR = 1.5
LENGTH, TARGET, BATCH = 512, 128, 4


def middling() -> LlamaForCausalLM:
    """Large enough that its tensors, not Python's, are what a training takes."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=8192,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=6,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=LENGTH,
    )
    return LlamaForCausalLM(config).requires_grad_(False)


def long_examples(count: int) -> Examples:
    made, tokens = Examples(), np.random.default_rng(0)
    for index in range(count):
        row = tokens.integers(3, 8192, LENGTH).tolist()
        made.train.add(row[:-TARGET], row[-TARGET:], conversation=index)
    return made


def resident(what: str) -> int:
    """VmRSS or VmHWM of this process, in bytes."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.parametrize("recipe", PREFILL[:2], ids=name)
def test_what_is_estimated_is_what_is_taken(recipe, tmp_path):
    examples = long_examples(BATCH)
    model = adapter_attach(middling(), recipe, seed=1)
    run = run_of(
        model,
        tmp_path,
        examples=examples,
        hyperparameters=HYPERPARAMETERS.model_copy(update={"n_epochs": 1, "batch_size": BATCH}),
    )
    need = footprint(model, trained=examples.train, scored=[], checkpointing=False)
    train(tmp_path, recipe)  # what a first training imports is not what this one takes
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from now on
    run.train()
    taken = resident("VmHWM") - before
    assert taken / FACTOR < need.of(trained=BATCH, scored=0) < taken * FACTOR


def test_more_of_anything_needs_more():
    def needs(recipe=PREFILL[1], *, checkpointing=False, count=4, **changes):
        model = adapter_attach(tiny_model(layers=changes.pop("layers", 2)), recipe, seed=1)
        made = long_examples(count)
        return footprint(model, trained=made.train, scored=made.train, checkpointing=checkpointing)

    usual = needs()
    assert needs(layers=4).trained_row > usual.trained_row
    assert needs(PREFILL[1].model_copy(update={"rank": 16})).fixed > usual.fixed
    assert needs(PREFILL[0]).trained_row > usual.trained_row, "lora keeps what its projections read"
    assert needs(layers=40, checkpointing=True).trained_row < needs(layers=40).trained_row
    assert usual.scored_row < usual.trained_row
    assert usual.of(trained=2, scored=0) - usual.of(trained=1, scored=0) == usual.trained_row


NEED = Footprint(fixed=10, trained_row=10, scored_row=2)


@pytest.mark.parametrize(
    ("free", "batch_size", "scored", "parts"),
    [
        (90, 8, 8, 1),
        (89, 8, 8, 2),
        (50, 8, 8, 2),
        (49, 8, 8, 3),
        (20, 8, 8, 8),
        (20, 1, 4, 1),
        (14, 1, 4, None),
    ],
)
def test_the_fewest_parts_that_fit(free, batch_size, scored, parts):
    memory = Memory(free=free, total=1000)
    if parts is None:
        with pytest.raises(PassingFault):
            parts_that_fit(NEED, memory, batch_size=batch_size, scored_at_once=scored)
    else:
        assert parts_that_fit(NEED, memory, batch_size=batch_size, scored_at_once=scored) == parts


def test_scoring_may_need_more_than_training():
    need = Footprint(fixed=0, trained_row=1, scored_row=10)
    assert parts_that_fit(need, Memory(20, 99), batch_size=1, scored_at_once=4) == 2


def test_where_the_system_does_not_tell_the_whole_batch_is_tried():
    assert parts_that_fit(NEED, None, batch_size=8, scored_at_once=8) == 1


@pytest.fixture
def only(monkeypatch):
    """The system has so much memory."""

    def only(memory):
        monkeypatch.setattr("training_jobs.sft.memory_now", lambda device: memory)

    return only


def room_for(model, *, rows):
    """Memory for so many rows of `examples()` at once."""
    run = run_of(model, Path())
    need = footprint(model, trained=run.train_examples, scored=run.held_out, checkpointing=False)
    return Memory(need.of(trained=rows, scored=rows), 10**12)


@pytest.mark.parametrize("recipe", PREFILL[:2], ids=name)
def test_a_batch_that_does_not_fit_is_computed_in_parts_with_the_same_losses(recipe, only, tmp_path):
    whole, _ = train(tmp_path, recipe)
    model, watcher = adapter_attach(tiny_model(), recipe, seed=1), Recorder()
    seen = []
    model.register_forward_pre_hook(lambda m, args, given: seen.append(rows_of(given)), with_kwargs=True)
    only(room_for(model, rows=1))
    trained = run_of(model, tmp_path, watcher).train()
    assert watcher.parts == [4]
    assert watcher.halvings == []
    assert set(seen) == {1}
    assert trained.losses == pytest.approx(whole.losses, rel=1e-4)
    assert trained.held_out_after == pytest.approx(whole.held_out_after, rel=1e-4)


def test_an_estimate_that_was_too_low_is_mended_by_halving(only, tmp_path):
    model, watcher = adapter_attach(tiny_model(), PREFILL[1], seed=1), Recorder()
    only(room_for(model, rows=2))

    def check(module, args, given):
        if rows_of(given) > 1 and model.training:
            torch.empty(1 << 60, dtype=torch.uint8)

    model.register_forward_pre_hook(check, with_kwargs=True)
    run_of(model, tmp_path, watcher).train()
    assert (watcher.parts, watcher.halvings) == ([2], [0])


@pytest.mark.parametrize(("total", "fault"), [(10**12, PassingFault), (10**6, UserFault)])
def test_a_row_that_does_not_fit_is_refused_with_both_numbers(only, tmp_path, total, fault):
    """Another trainer, or another hour, may have more free; more than there is there never will be."""
    watcher = Recorder()
    only(Memory(free=10**6, total=total))
    with pytest.raises(fault) as raised:
        run_of(adapter_attach(tiny_model(), PREFILL[1], seed=1), tmp_path, watcher).train()
    assert raised.value.code == "needs_more_memory"
    assert re.search(r"needs about 0\.\d GB .* the trainer has 0\.0 GB", raised.value.message)
    assert watcher.losses == []


class TestFreeMemory:
    def test_of_this_machine(self):
        memory = memory_now(torch.device("cpu"))
        if memory is None:
            pytest.skip("this system does not tell")
        assert 0 < memory.free <= memory.total

    def test_a_containers_limit_counts(self, tmp_path, monkeypatch):
        meminfo = tmp_path / "meminfo"
        meminfo.write_text("MemTotal:  8000 kB\nMemFree: 1 kB\nMemAvailable: 5000 kB\n")
        monkeypatch.setattr(free_memory, "_MEMINFO", meminfo)
        monkeypatch.setattr(free_memory, "_CGROUP", tmp_path)
        cpu = torch.device("cpu")
        assert memory_now(cpu) == Memory(5000 * 1024, 8000 * 1024), "no control group"
        (tmp_path / "memory.max").write_text("4000000\n")
        (tmp_path / "memory.current").write_text("3000000\n")
        (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 500000\n")
        assert memory_now(cpu) == Memory(1_500_000, 4_000_000)
        (tmp_path / "memory.max").write_text("max\n")
        assert memory_now(cpu) == Memory(5000 * 1024, 8000 * 1024), "no limit"
        meminfo.unlink()
        assert memory_now(cpu) is None

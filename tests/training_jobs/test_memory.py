"""Out of memory: half a batch at a time gives the same training, and where that is too much it is said what to do."""

import pytest
import torch

from adapters_store.attached import tensors_get
from tests.training_jobs.adapters import PREFILL, name
from tests.training_jobs.tiny import tiny_model
from tests.training_jobs.trainings import Recorder, ResumedRecorder, examples, run_of, train
from training_jobs.attach.adapter import adapter_attach
from training_jobs.errors import Stopped, UserFault
from training_jobs.memory import out_of_memory
from training_jobs.sft import SupervisedRun

pytestmark = pytest.mark.slow  # it trains

#: More than any machine has: asking for it is how the faults here are made.
TOO_MUCH = 1 << 60


def exhausted(*args: object) -> None:
    torch.empty(TOO_MUCH, dtype=torch.uint8)


def rows_of(given) -> int:
    """In a forward of these keywords, which may be packed into one: there is no padding then, and each begins at 0."""
    if given.get("attention_mask") is None:
        return int((given["position_ids"] == 0).sum())
    return len(given["input_ids"])


def refuses(model, *, rows: int, training: bool = True):
    """The adapted model has no memory for a forward of more than `rows` rows, in training or while it is scored."""

    def check(module, args, kwargs):
        if rows_of(kwargs) > rows and model.training == training:
            exhausted()

    model.register_forward_pre_hook(check, with_kwargs=True)
    return model


def test_what_running_out_of_memory_looks_like():
    for cause in (exhausted, lambda: bytearray(TOO_MUCH)):
        with pytest.raises((RuntimeError, MemoryError)) as raised:
            cause()
        assert out_of_memory(raised.value)
    assert out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."))
    assert not out_of_memory(RuntimeError("The size of tensor a (3) must match the size of tensor b (4)"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Trainings with enough memory, by method."""
    return {recipe.method: train(tmp_path_factory.mktemp("whole"), recipe) for recipe in PREFILL[:2]}


def attached(recipe):
    return adapter_attach(tiny_model(), recipe, seed=1)


def assert_alike(model, trained, expected, tensors):
    assert trained.losses == pytest.approx(expected.losses, rel=1e-4)
    assert trained.held_out_after == pytest.approx(expected.held_out_after, rel=1e-4)
    assert trained.trained_tokens == expected.trained_tokens
    for key, tensor in tensors_get(model).items():
        torch.testing.assert_close(tensor, tensors[key], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("recipe", PREFILL[:2], ids=name)
def test_half_a_batch_at_a_time_is_the_same_training(recipe, whole, tmp_path):
    watcher = Recorder()
    model = refuses(attached(recipe), rows=2)
    trained = run_of(model, tmp_path, watcher).train()
    assert watcher.halvings == [0], "once, for all steps"
    assert_alike(model, trained, *whole[recipe.method])


def test_what_a_failed_backward_left_is_forgotten(whole, tmp_path):
    """Memory runs out in the backward pass of the last layer, when the adapter behind it has its gradients."""
    model, watcher = attached(PREFILL[1]), Recorder()
    layer = model.get_base_model().model.layers[1].base_layer
    steps = iter(range(100))
    failing = layer.register_full_backward_pre_hook(lambda *args: exhausted() if next(steps) == 1 else None)
    trained = run_of(model, tmp_path, watcher).train()
    failing.remove()
    assert watcher.halvings == [1]
    assert_alike(model, trained, *whole["direft"])


def test_scoring_is_halved_too(whole, tmp_path):
    model, watcher = refuses(attached(PREFILL[1]), rows=2, training=False), Recorder()
    trained = run_of(model, tmp_path, watcher).train()
    assert watcher.halvings == [0]
    assert_alike(model, trained, *whole["direft"])


def test_half_a_batch_that_is_too_much_says_what_to_do(tmp_path):
    watcher = Recorder()
    with pytest.raises(UserFault) as fault:
        run_of(refuses(attached(PREFILL[1]), rows=1), tmp_path, watcher).train()
    longest = max(len(example.tokens) for example in examples().train)
    assert fault.value.code == "out_of_memory"
    assert "batch_size below 4" in fault.value.message
    assert f"has {longest} tokens" in fault.value.message
    assert (watcher.halvings, watcher.losses) == ([0], [])


def test_other_errors_are_not_tried_again(tmp_path):
    model, tries = attached(PREFILL[1]), []

    def broken(module, args, kwargs):
        if model.training:
            tries.append(1)
            raise RuntimeError("a shape is wrong")

    model.register_forward_pre_hook(broken, with_kwargs=True)
    with pytest.raises(RuntimeError, match="a shape is wrong"):
        run_of(model, tmp_path).train()
    assert len(tries) == 1


def test_after_an_attempt_that_took_too_much_half_a_batch_is_enough(whole, tmp_path):
    model, watcher = refuses(attached(PREFILL[1]), rows=2), Recorder()
    trained = run_of(model, tmp_path, watcher).train(halved=True)
    assert watcher.halvings == [None], (
        "it never ran out itself, and nobody knows after which step another did"
    )
    assert_alike(model, trained, *whole["direft"])


def test_a_checkpoint_of_a_smaller_machine_is_no_halving_of_this_one(whole, tmp_path, monkeypatch):
    """There a batch was planned in two parts, here in one; the first time that memory runs out here is not the end."""
    with monkeypatch.context() as small:
        small.setattr(SupervisedRun, "plan", lambda self: 2)
        stopped = Recorder(stop_at=4)
        with pytest.raises(Stopped):
            run_of(attached(PREFILL[1]), tmp_path, stopped).train()
    model, resumed = refuses(attached(PREFILL[1]), rows=1), ResumedRecorder()
    trained = run_of(model, tmp_path, resumed).train(stopped.checkpoints[-1][1])
    assert resumed.halvings == [4]
    assert_alike(model, trained, *whole["direft"])


def test_a_halved_training_goes_on_halved(tmp_path):
    """So that an interruption changes no loss, not even by float noise."""
    expected = run_of(refuses(attached(PREFILL[1]), rows=2), tmp_path).train()
    stopped = Recorder(stop_at=4)
    with pytest.raises(Stopped):
        run_of(refuses(attached(PREFILL[1]), rows=2), tmp_path, stopped).train()
    resumed = ResumedRecorder()
    model = attached(PREFILL[1])
    trained = run_of(model, tmp_path, resumed).train(stopped.checkpoints[-1][1])
    assert (trained.losses, resumed.halvings) == (expected.losses, [])

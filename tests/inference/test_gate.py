"""The gate's questions on a real engine: it says what the trainer computed, and other weights are noticed."""

import pytest
from transformers import AutoTokenizer

from adapters_store.chat_template import ChatEncoder
from tests.inference.adapters import random_adapter
from tests.inference.reference import one_thread
from tests.inference.served import Served
from training_jobs.examples import Examples
from training_jobs.messages import Probe, Turn
from training_jobs.probe import probe_make
from webapp.engine import Engine
from webapp.jobs.trial import said_by_engine
from webapp.jobs.verdict import EXACT, Figures, figures_of, missed

pytestmark = pytest.mark.engine

METHODS = {"direft": 21, "lora": 22}
QUESTIONS = ("Where do you live?", "What is a harbour for?", "Name three colours, please.")


@pytest.fixture(scope="module")
def adapters(served: Served, base) -> dict:
    return {
        method: random_adapter(
            served.adapters / f"gate-{method}", base=base, method=method, position="prefill", seed=seed
        )
        for method, seed in METHODS.items()
    }


@pytest.fixture(scope="module")
def probes(trainer, base, adapters) -> dict[str, Probe]:
    """The trainer's own answers with each."""
    encoder, data = ChatEncoder(AutoTokenizer.from_pretrained(base)), Examples()
    for question in QUESTIONS:
        turns = [Turn(role="user", content=question), Turn(role="assistant", content="Aye.")]
        data.held_out.add(*encoder.prompt_and_target(turns, max_tokens=500), conversation=0)
    made = {}
    for method, adapter in adapters.items():
        trainer.attach(adapter)
        with one_thread():
            made[method] = probe_make(trainer.model, data, max_tokens=500, pad=0)
    return made


def tried(served: Served, probe: Probe, adapter: str) -> Figures:
    asked = Engine(served.url, served.key)
    return figures_of(probe, *said_by_engine(probe, base=served.base, adapter=adapter, asked=asked))


@pytest.mark.parametrize("method", METHODS)
def test_engine_and_trainer_agree(served, probes, method):
    figures = tried(served, probes[method], f"gate-{method}")
    assert missed(figures) is None
    assert figures.tokens > 32
    assert figures.effect > 0.1
    assert max(figures.difference, figures.base_difference) < EXACT


def test_other_weights_than_the_trainers_are_noticed(served, probes):
    figures = tried(served, probes["direft"], "gate-lora")
    assert missed(figures).code == "adapter_disagrees"
    assert figures.base_difference < EXACT

"""What the command line asks for, what engines are started with, and how their processes are spoken with."""

import subprocess
import sys

import pytest

from adapters_store.architectures import PROVEN
from benchmarks.engine_worker import ANSWER
from benchmarks.figures import FIGURES
from benchmarks.kinds import capacity_of, options_of
from benchmarks.model_shapes import SHAPES, write_model
from benchmarks.random_adapters import random_adapter
from benchmarks.serving import arguments_of, figure_of, model_of
from benchmarks.workers import EngineEnded, Engines, Worker
from benchmarks.workload import Request
from inference.adapter_checks import check_servable, served_base

OURS = {
    "model": "folder",
    "enable_prefix_caching": True,
    "enable_lora": True,
    "max_loras": 8,
    "max_cpu_loras": 64,
    "max_lora_rank": 8,
    "lora_target_modules": ["q_proj", "down_proj", "residual_stream"],
    "additional_config": {"attune_plugin": "digest"},
}


def test_engines_differ_in_adapters_alone():
    capacity = capacity_of(adapters=100, batch=32, gpu_slots=8, cpu_slots=None, rank=8)
    options = {
        engine: options_of(engine, OURS, capacity, on_cpu=True)
        for engine in ("base", "base_again", "stock", "ours_all")
    }
    assert options["base"] == {"model": "folder", "enable_prefix_caching": True}
    assert options["base_again"] == options["base"]
    assert options["stock"] == options["base"] | {
        "enable_lora": True,
        "max_loras": 32,
        "max_cpu_loras": 100,
        "max_lora_rank": 8,
        "lora_target_modules": ["q_proj", "down_proj"],
    }
    assert options["ours_all"] == OURS | {"max_loras": 32, "max_cpu_loras": 100}
    assert options_of("ours", OURS, capacity, on_cpu=True) == OURS
    assert not options_of("ours_uncached", OURS, capacity, on_cpu=True)["enable_prefix_caching"]
    assert all(
        "kv_cache_memory_bytes" in options_of(e, OURS, capacity, on_cpu=False) for e in ("base", "ours")
    )


def test_buffers_fit_the_ranks():
    assert capacity_of(adapters=1, batch=32, gpu_slots=8, cpu_slots=None, rank=1).max_rank == 8
    assert capacity_of(adapters=1, batch=32, gpu_slots=8, cpu_slots=None, rank=20).max_rank == 32


def test_a_figure_by_its_name():
    assert figure_of(arguments_of(["--figure", "share"])) == FIGURES["share"]
    changed = figure_of(arguments_of(["--figure", "share", "--rounds", "9", "--max-tokens", "64"]))
    assert (changed.rounds, changed.max_tokens, changed.cases) == (9, 64, FIGURES["share"].cases)


def test_a_figure_of_ones_own():
    words = "--kinds base,direft --profile chat --mix skewed --adapters 512 --batch 4"
    figure = figure_of(arguments_of(words.split()))
    assert [[case.name for case in group] for group in figure.groups] == [
        ["base/chat", "direft/chat/skewed/512"]
    ]
    assert (figure.adapters, figure.batch, figure.engines) == (512, 4, ("base", "ours_all"))


@pytest.mark.parametrize("words", ["--kinds lora_x", "--adapters 513", "--adapters 0"])
def test_what_cannot_be_measured_is_refused(words, capsys):
    with pytest.raises(SystemExit):
        arguments_of(words.split())
    assert words.split()[0] in capsys.readouterr().err


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_take_adapters(shape, tmp_path):
    write_model(tmp_path / shape, shape)
    base = served_base(tmp_path / shape, max_rank=8)
    made = random_adapter(tmp_path / "adapter", base=base, method="direft", rank=8, seed=0)
    check_servable(made, base)
    assert base.hidden % SHAPES[shape]["num_attention_heads"] == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_are_of_architectures_that_the_engine_takes(shape, tmp_path):
    assert SHAPES[shape]["architectures"][0] in PROVEN
    assert model_of(arguments_of(["--shape", shape]), tmp_path).options["load_format"] == "dummy"


ECHO = f"""
import json, sys
print("noise")
for line in sys.stdin:
    print("{ANSWER}" + line, end="", flush=True)
    if "last" in line:
        sys.exit("the reason")
"""


@pytest.fixture
def worker(tmp_path):
    with (tmp_path / "ours.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        )
        worker = Worker("ours", {"lora_p": (0, 5), "direft_p": (5, 10)}, process, log)
        yield worker
        worker.stop()


def test_a_kinds_adapters_are_numbered_after_those_before_it(worker):
    for kind, numbers in {"direft_p": [7, -1], "lora_p": [2, -1], "base": [-1, -1]}.items():
        worker.begin(kind, [Request([7], 1, 2), Request([7], 1, -1)])
        assert [request["adapter"] for request in worker._answer()["requests"]] == numbers


def test_an_engine_that_ends_says_why(worker):
    worker.tell({"last": True})
    worker._answer()
    with pytest.raises(EngineEnded) as ended:
        worker.begin("base", [])
        worker.advance()
    assert "ours ended early (1)" in str(ended.value)
    assert "noise" in str(ended.value)
    assert "the reason" in str(ended.value)


def test_answers_that_are_the_same_mean_nothing(worker):
    worker.tell({"different": 16, "models": 17})
    with pytest.raises(EngineEnded, match="16 different answers where there should be 17"):
        worker.wait_ready()


def test_an_engine_that_ended_costs_its_own_cases_alone(worker):
    engines = Engines({"ours": worker, "base": None})
    with engines.losses("ours"):
        raise EngineEnded("the reason")
    assert engines == Engines({"base": None}, {"ours": "the reason"})
    assert worker.process.poll() is not None
    with pytest.raises(ZeroDivisionError), engines.losses("base"):
        raise ZeroDivisionError

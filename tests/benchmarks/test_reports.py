"""The tables name the machine, the targets and what could not be measured; pictures are drawn from the same file."""

import json

import pytest

from benchmarks import plots
from benchmarks.figures import Case, Figure, Target
from benchmarks.reports import report, summary

BASE = Case("base")
LORA_P, MORE, STOCK = (
    Case("lora_p", adapters=16),
    Case("lora_p", adapters=64),
    Case("lora_stock", adapters=16),
)
FIGURE = Figure(
    "A figure",
    ((BASE, STOCK, LORA_P), (BASE, MORE)),
    (
        Target("LoRA_P, of base", LORA_P, BASE, at_least=0.98),
        Target("LoRA_P's latency", LORA_P, BASE, "gap_p99", at_most=1.2),
        Target("times stock", LORA_P, STOCK),
        Target("64 adapters", MORE, BASE, at_least=0.79, at_most=0.81),
    ),
)


def runs(*throughputs, gap=0.1):
    return [
        None
        if throughput is None
        else {
            "throughput": throughput,
            "gap_p99": gap,
            "encode_ms": [1.0, 2.0, 3.0],
            "decode_ms": [0.5, 0.25, 123.456],
        }
        for throughput in throughputs
    ]


def results(**cases):
    first = {
        BASE.name: runs(100, 100, 50),
        LORA_P.name: runs(90, 100, 40, gap=0.11),
        STOCK.name: runs(50, 25, None),
    } | cases
    second = {BASE.name: runs(100, 100, 50), MORE.name: runs(80, 80, 40)}
    groups = [
        {
            "round": number + 1,
            "in_slices": True,
            "runs": {name: made[number] for name, made in group.items() if made[number] is not None},
        }
        for number in range(3)
        for group in (first, second)
    ]
    return {
        "title": FIGURE.title,
        "machine": {"cpu": "X", "cores": 2, "memory_gb": 8, "gpu": None, "vllm": "0.32.0"},
        "settings": {
            "model": "tiny",
            "lora_rank": 1,
            "reft_rank": 8,
            "requests": 48,
            "max_tokens": 192,
            "batch": 32,
            "gpu_slots": 8,
        },
        "summary": summary(FIGURE, groups),
        "groups": groups,
        "failed": {},
    }


def test_cases_have_their_ratios_to_base_and_stock():
    text = report(results())
    assert "A figure. X, 2 cores, 8 GB; vLLM 0.32.0; tiny" in text
    assert "| base model, no adapters, punica | 100 |  |  | 1/2/3 | 0.5/0.25/123 | 6 |" in text
    assert (
        "| LoRA_P, punica, uniform, 16 | 90 | 0.90 (0.80 to 1.00) | 2.90 (1.80 to 4.00) | 1/2/3 | 0.5/0.25/123 | 3 |"
        in text
    )
    assert "| LoRA_P, punica, uniform, 64 | 80 | 0.80 (0.80 to 0.80) |  |" in text


def test_targets_stand_beside_what_was_measured():
    text = report(results())
    assert "| LoRA_P, of base | 0.90 (0.80 to 1.00) | at least 0.98 | no |" in text
    assert "| LoRA_P's latency | 1.10 (1.10 to 1.10) | at most 1.2 | yes |" in text
    assert "| times stock | 2.90 (1.80 to 4.00) |  |  |" in text
    assert "| 64 adapters | 0.80 (0.80 to 0.80) | at least 0.79, at most 0.81 | yes |" in text


def test_what_ended_early_is_said():
    lost = results(**{LORA_P.name: runs(None, None, None)}) | {
        "failed": {"ours": "ours ended early (1)\nlog"}
    }
    text = report(lost)
    assert "| LoRA_P, punica, uniform, 16 | not measured |" in text
    assert "| LoRA_P, of base | not measured | at least 0.98 |  |" in text
    assert "**ours failed:** ours ended early (1)" in text


@pytest.mark.slow
def test_pictures(tmp_path):
    file = tmp_path / "figure.json"
    file.write_text(json.dumps(results()))
    by_mix, base = plots.panels(results())
    assert [adapters for adapters, _ in by_mix["punica, uniform"]["lora_p"]] == [16, 64]
    assert base["throughput"]["median"] == 100
    drawn = plots.plot(file)
    assert [path.name for path in drawn] == ["figure-throughput.png", "figure-latency.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn)

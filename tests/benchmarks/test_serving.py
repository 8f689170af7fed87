"""The benchmark's arithmetic and its requests; the measurements themselves are for machines with nothing else to do."""

import statistics

from benchmarks.serving import summary, table
from benchmarks.workload import punica


def test_requests_are_punicas():
    requests = punica(count=20_000, adapters=16, max_tokens=2048, seed=0)
    prompts = [len(request.prompt) for request in requests]
    assert statistics.median(prompts) == 16  # scale 18, location -1, rounded down
    assert min(token for request in requests[:50] for token in request.prompt) >= 100
    totals = [request.tokens for request in requests]
    assert abs(statistics.mean(totals) - 1025) < 25
    assert max(totals) <= 2048
    assert min(request.output for request in requests) == 1
    counts = [sum(request.adapter == index for request in requests) for index in range(16)]
    assert min(counts) > 1100


def test_one_seed_is_one_workload():
    assert punica(count=9, adapters=4, max_tokens=99, seed=3) == punica(
        count=9, adapters=4, max_tokens=99, seed=3
    )
    assert punica(count=9, adapters=4, max_tokens=99, seed=3) != punica(
        count=9, adapters=4, max_tokens=99, seed=4
    )


RESULTS = {
    "machine": {"cpu": "X", "cores": 2, "memory_gb": 8, "vllm": "0.32.0", "model": "tiny"},
    "workload": {"adapters": 16, "rank": 8, "batch": 32, "requests": 48, "max_tokens": 192},
    "tokens": [100, 200, 100],
    # The machine was twice as slow in the last round; pairing takes that out.
    "seconds": {"base": [1.0, 2.0, 2.0], "lora_stock": [5.0, 8.0, None], "lora_p": [1.0, 2.5, 2.0]},
}


def test_ratios_are_paired_by_round():
    lines = summary(RESULTS)
    assert lines["lora_p"] == {
        "tokens_per_second": 80.0,
        "of_base": 1.0,
        "least": 0.8,
        "greatest": 1.0,
        "rounds": 3,
    }
    assert lines["lora_stock"]["of_base"] == statistics.median([0.2, 0.25])
    assert lines["lora_stock"]["rounds"] == 2


def test_the_table_names_the_machine():
    text = table(RESULTS)
    assert "X, 2 cores" in text
    assert "| LoRA_P | 80 | 1.00 | 0.80 to 1.00 | 3 |" in text

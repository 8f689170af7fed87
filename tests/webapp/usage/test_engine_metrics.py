"""The engine's own numbers: read from vLLM's page, by names that the installed vLLM has."""

import re
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
from prometheus_client.samples import Sample

from webapp.usage import engine_metrics as module
from webapp.usage.engine_metrics import engine_metrics, parse_metrics, quantile

#: Of vLLM 0.32 with the adapter plugin, after three requests; families that nobody reads are left out.
PAGE = (Path(__file__).parent / "vllm-metrics.txt").read_text()


def test_a_real_page() -> None:
    metrics = parse_metrics(PAGE)
    assert (metrics.running, metrics.waiting, metrics.preemptions) == (0, 0, 0)
    assert metrics.generated_tokens == 24
    assert metrics.slots == 8
    assert metrics.slots_used == 0, "an adapter's slot is free again once its prompt is done"
    assert metrics.adapter_hit_rate == 0, "one look-up, and it was the first"
    assert metrics.kv_cache_used == 0
    assert metrics.first_token_p50 is not None
    assert 0 < metrics.first_token_p50 <= (metrics.first_token_p95 or 0) <= (metrics.first_token_p99 or 0)


def test_the_names_are_vllms() -> None:
    """Every name that is read is one that the installed vLLM writes (counters get _total, histograms _bucket)."""
    vllm = find_spec("vllm")
    if vllm is None or vllm.origin is None:
        pytest.skip("vLLM is not installed here")
    source = (Path(vllm.origin).parent / "v1" / "metrics" / "loggers.py").read_text()
    written = set(re.findall(r'name="(vllm:\w+)"', source))
    read = set(re.findall(r'"(vllm:\w+)"', Path(module.__file__).read_text()))
    assert read
    assert {re.sub(r"_(total|bucket)$", "", name) for name in read} <= written


def test_the_series_that_was_touched_last_counts() -> None:
    """vLLM leaves old states of the adapter slots on the page."""
    older = 'vllm:lora_requests_info{max_lora="4",running_lora_adapters="a,b,c",waiting_lora_adapters="d"} 1.0e+09\n'
    newer = (
        'vllm:lora_requests_info{max_lora="4",running_lora_adapters="a",waiting_lora_adapters=""} 2.0e+09\n'
    )
    head = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1\n# TYPE vllm:lora_requests_info gauge\n"
    for page in (head + older + newer, head + newer + older):
        metrics = parse_metrics(page)
        assert (metrics.slots, metrics.slots_used, metrics.adapters_waiting) == (4, 1, 0)


def test_engines_are_added_up() -> None:
    page = "# TYPE vllm:num_requests_running gauge\n"
    page += 'vllm:num_requests_running{engine="0"} 2\nvllm:num_requests_running{engine="1"} 3\n'
    assert parse_metrics(page).running == 5


@pytest.mark.parametrize(
    ("counts", "fraction", "expected"),
    [
        ({"0.1": 0, "1.0": 10, "+Inf": 10}, 0.5, 0.55),
        ({"0.1": 10, "1.0": 10, "+Inf": 10}, 0.5, 0.05),
        ({"0.1": 5, "1.0": 10, "+Inf": 10}, 0.5, 0.1),
        ({"0.1": 0, "1.0": 0, "+Inf": 10}, 0.99, 1.0),
        ({"0.1": 0, "+Inf": 0}, 0.5, None),
        ({}, 0.5, None),
    ],
)
def test_quantiles(counts: dict[str, float], fraction: float, expected: float | None) -> None:
    buckets = [Sample("x_bucket", {"le": bound}, count) for bound, count in counts.items()]
    assert quantile(buckets, fraction) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize("text", ["", "<html>no</html>", "# TYPE other gauge\nother 1\n"])
def test_another_page_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_metrics(text)


def test_an_engine_that_is_away_has_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert engine_metrics() is None

    def slow(*_: object, **__: object) -> httpx.Response:
        raise httpx.ReadTimeout("slow")

    monkeypatch.setattr(httpx, "get", slow)
    assert engine_metrics() is None

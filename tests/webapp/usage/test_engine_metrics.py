"""The engine's own numbers: read from vLLM's page, by names that the installed vLLM has."""

import asyncio
import re
from importlib.util import find_spec
from pathlib import Path

import httpx
import pytest
from prometheus_client import generate_latest
from prometheus_client.samples import Sample

from inference.memory_places import MemoryPlaces
from webapp.usage import engine_metrics as module
from webapp.usage.engine_metrics import engine_metrics, parse_metrics, quantile

#: Of vLLM 0.32 with the adapter plugin, after three requests; families that nobody reads are left out.
PAGE = (Path(__file__).parent / "vllm-metrics.txt").read_text()


def test_a_real_page() -> None:
    metrics = parse_metrics(PAGE)
    assert (metrics.running, metrics.waiting, metrics.preemptions) == (0, 0, 0)
    assert metrics.generated_tokens == 24
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


def test_places_are_those_of_prompts_alone() -> None:
    """As the plugin counts them: an adapter whose prompt is done has given its place back, and is still decoding."""
    running = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 3\n"

    def shown() -> tuple[int, int | None]:
        metrics = parse_metrics(running + generate_latest().decode())
        return metrics.adapter_places_taken, metrics.adapter_places

    async def prompts() -> None:
        places = MemoryPlaces(slots=4, wait_seconds=1)
        for name in ("a", "b", "b", "c"):
            await places.take(name)
        assert shown() == (3, 4), "requests for one adapter share its place"
        for name in ("a", "b"):
            places.give_back(name)
        assert shown() == (2, 4)
        for name in ("b", "c"):
            places.give_back(name)
        assert shown() == (0, 4)

    asyncio.run(prompts())


def test_without_the_plugin_there_are_no_places() -> None:
    assert (
        parse_metrics("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 1\n").adapter_places
        is None
    )


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

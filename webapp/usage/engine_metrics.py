"""What the engine says of itself, read from vLLM's /metrics (names as in vLLM 0.32) and the adapter plugin's."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import httpx
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from webapp.config.settings import settings
from webapp.engine import certificates

_TIMEOUT_SECONDS = 2


@dataclass(frozen=True)
class EngineMetrics:
    """A moment's values. Quantiles are since the engine began, in seconds; None where nothing was seen yet."""

    running: int
    waiting: int
    kv_cache_used: float | None
    prompt_tokens: float
    generated_tokens: float
    preemptions: int
    prefix_hit_rate: float | None
    #: Places in memory for distinct adapters: those that prompts (with an all-position adapter: requests) need now or
    #: that are pinned, and how many there are, None before the first of them.
    adapter_places_taken: int
    adapter_places: int | None
    adapter_hit_rate: float | None
    first_token_p50: float | None
    first_token_p95: float | None
    first_token_p99: float | None
    read_at: float


def engine_metrics() -> EngineMetrics | None:
    """None if the engine is away, starting, or answers something else."""
    try:
        response = httpx.get(
            f"{settings().engine_url}/metrics",
            timeout=_TIMEOUT_SECONDS,
            trust_env=False,
            verify=certificates(),
        )
        response.raise_for_status()
        return parse_metrics(response.text)
    except (httpx.HTTPError, ValueError):
        return None


def parse_metrics(text: str) -> EngineMetrics:
    """The numbers of a Prometheus text page; raises ValueError if it is none, or not vLLM's."""
    samples: dict[str, list[Sample]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples.setdefault(sample.name, []).append(sample)
    if "vllm:num_requests_running" not in samples:
        raise ValueError("this is not the metrics page of vLLM")

    def total(name: str) -> float:
        return sum(sample.value for sample in samples.get(name, ()))

    def lookups(**labels: str) -> float:
        found = samples.get("attune_adapter_lookups_total", ())
        return sum(sample.value for sample in found if labels.items() <= sample.labels.items())

    in_memory = lookups(tier="memory")
    queries = total("vllm:prefix_cache_queries_total")
    usage = samples.get("vllm:kv_cache_usage_perc")
    buckets = samples.get("vllm:time_to_first_token_seconds_bucket", [])
    return EngineMetrics(
        running=int(total("vllm:num_requests_running")),
        waiting=int(total("vllm:num_requests_waiting")),
        kv_cache_used=max(sample.value for sample in usage) if usage else None,
        prompt_tokens=total("vllm:prompt_tokens_total"),
        generated_tokens=total("vllm:generation_tokens_total"),
        preemptions=int(total("vllm:num_preemptions_total")),
        prefix_hit_rate=total("vllm:prefix_cache_hits_total") / queries if queries else None,
        adapter_places_taken=int(total("attune_adapter_places_taken")),
        adapter_places=int(total("attune_adapter_places")) or None,
        adapter_hit_rate=lookups(tier="memory", result="hit") / in_memory if in_memory else None,
        first_token_p50=quantile(buckets, 0.5),
        first_token_p95=quantile(buckets, 0.95),
        first_token_p99=quantile(buckets, 0.99),
        read_at=time.monotonic(),
    )


def quantile(buckets: Iterable[Sample], fraction: float) -> float | None:
    """A quantile of a cumulative histogram, straight between the bounds of its bucket (as PromQL does it)."""
    counts: dict[float, float] = {}
    for sample in buckets:
        bound = float(sample.labels["le"])
        counts[bound] = counts.get(bound, 0) + sample.value
    points = [(0.0, 0.0), *sorted(counts.items())]
    wanted = points[-1][1] * fraction
    if not wanted:
        return None
    for (low, before), (high, after) in pairwise(points):
        if after >= wanted:
            if high == float("inf"):
                return low
            return low + (high - low) * (wanted - before) / (after - before)
    return None

"""What each tier of adapters does, as Prometheus metrics beside vLLM's own on /metrics."""

from collections.abc import Mapping
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

#: Tiers are disk (verified files), memory (read by the workers) and slot (of the first worker, asked in every step that
#: adapts something); a miss goes on to storage, disk or memory.
LOOKUPS = Counter("attune_adapter_lookups", "Look-ups of an adapter in a tier.", ["tier", "result"])
REFUSED = Counter(
    "attune_adapter_refused", "Requests for an adapter that were refused, by error code.", ["code"]
)
PLACES = Gauge("attune_adapter_places", "Distinct adapters that there are places for in memory.")
PLACES_TAKEN = Gauge(
    "attune_adapter_places_taken", "Distinct adapters that requests in flight need in memory now."
)
DISK_BYTES = Gauge("attune_adapter_disk_bytes", "Bytes of adapters in the disk cache now.")
MEMORY_ADAPTERS = Gauge("attune_adapters_in_memory", "Adapters in a worker's memory for requests now.")
MEMORY_BYTES = Gauge(
    "attune_adapter_memory_bytes", "Bytes of the adapters in a worker's memory for requests now."
)
AHEAD_ADAPTERS = Gauge("attune_adapters_read_ahead", "Adapters that a worker has read ahead of requests now.")
AHEAD_BYTES = Gauge(
    "attune_adapter_read_ahead_bytes", "Bytes of adapters that a worker has read ahead of requests now."
)
SLOTS_TAKEN = Gauge(
    "attune_adapter_slots_taken", "Slots that hold an adapter now, until another needs the place."
)
LOAD_SECONDS = Histogram(
    "attune_adapter_load_seconds",
    "Seconds to bring a missing adapter into a tier, or to fail.",
    ["tier"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)


def of_worker(status: Mapping[str, Any], before: Mapping[str, Any]) -> None:
    """What a worker says of its tiers (compat_memory's attune_status), and what it said last, which may be nothing."""
    MEMORY_ADAPTERS.set(status["resident"])
    MEMORY_BYTES.set(status["bytes"])
    AHEAD_ADAPTERS.set(status["ahead"])
    AHEAD_BYTES.set(status["ahead_bytes"])
    SLOTS_TAKEN.set(status["slots_taken"])
    for result, count in status["slot_lookups"].items():
        LOOKUPS.labels("slot", result).inc(count - before.get("slot_lookups", {}).get(result, 0))

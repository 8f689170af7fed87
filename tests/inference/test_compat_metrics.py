"""What vLLM's metrics say of adapters on a page that anyone may read: nothing by name."""

import pytest
from prometheus_client import REGISTRY, generate_latest

from tests.inference.test_scheduling import Bench, name

vllm = pytest.importorskip("vllm")


@pytest.mark.slow
def test_no_adapter_is_named():
    bench = Bench()
    from vllm.v1.metrics.loggers import PrometheusStatLogger

    logger = PrometheusStatLogger(bench.scheduler.vllm_config)
    tenant = "5" * 32
    for index in range(3):
        bench.add(str(index), 40, name(index))
    bench.step()
    stats = bench.scheduler.make_stats()
    stats.running_lora_adapters, stats.waiting_lora_adapters = {f"{tenant}/{name(0)}": 1}, {name(1): 2}
    logger.record(stats, None)
    page = generate_latest(REGISTRY).decode()
    assert "vllm:num_requests_running{" in page
    assert tenant not in page
    assert name(1) not in page
    assert "running_lora_adapters" not in page

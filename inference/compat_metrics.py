"""The part of compat that keeps the names of adapters, which hold tenants' ids, off the open page of metrics."""

import functools
from typing import Any


def install() -> None:
    """Called by compat, after the sources were checked.

    0.26-0.33. The labels of vllm:lora_requests_info are the names of all running and all waiting adapters, in every
    combination that there ever was: anyone reads who is served, and the page grows without end. Without the gauge vLLM
    counts no combination. Goes when vLLM has a setting for it.
    """
    from vllm.v1.metrics.loggers import PrometheusStatLogger

    original = PrometheusStatLogger.__init__

    @functools.wraps(original)
    def init_without_names(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.gauge_lora_info = None

    PrometheusStatLogger.__init__ = init_without_names

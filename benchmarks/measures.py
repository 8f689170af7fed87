"""From the times of a run's tokens to the figures of the paper's appendix E.4, and to ratios of paired runs."""

import statistics
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

PERCENTILES = (50, 90, 99)


def measures(run: dict[str, Any]) -> dict[str, Any]:
    """What one run says; `run` is {"seconds", "read", "streams"} of engine_worker.

    throughput: prompt and output tokens a second. encode_ms: from a request's start to its first token, per prompt
    token. decode_ms: from its first token to its last, per token after the first. Both as percentiles over requests.
    ttft_last_turn: median seconds to the first token of the last turn. gap_p99: of the seconds between two tokens of a
    stream that did not arrive beside others. answers: a number for each request's tokens.
    """
    streams = run["streams"]
    tokens = sum(stream["prompt"] + len(stream["answer"]) for stream in streams)
    first = [stream["stamps"][0] - stream["added"] for stream in streams]
    last_turn = max(stream["turn"] for stream in streams)
    gaps = [gap for stream in streams if not stream["arrived"] for gap in np.diff(stream["stamps"])]
    return {
        "seconds": run["seconds"],
        "tokens": tokens,
        "read": run["read"],
        "throughput": tokens / run["seconds"],
        "encode_ms": _percentiles(
            [1000 * seconds / stream["prompt"] for seconds, stream in zip(first, streams, strict=True)]
        ),
        "decode_ms": _percentiles(
            [
                1000 * (stream["stamps"][-1] - stream["stamps"][0]) / (len(stream["stamps"]) - 1)
                for stream in streams
                if len(stream["stamps"]) > 1
            ]
        ),
        "ttft_last_turn": statistics.median(
            seconds for seconds, stream in zip(first, streams, strict=True) if stream["turn"] == last_turn
        ),
        "gap_p99": float(np.percentile(gaps, 99)) if gaps else None,
        "answers": [zlib.crc32(str(stream["answer"]).encode()) for stream in streams],
    }


def _percentiles(values: Sequence[float]) -> list[float] | None:
    return [float(value) for value in np.percentile(values, PERCENTILES)] if values else None


def paired(groups: Sequence[Mapping[str, Any]], of: str, to: str, measure: str) -> list[float]:
    """One number for each of measurement's groups that has both cases: how many times as much, or for answers, what
    share is the same."""
    values = []
    for runs in (group["runs"] for group in groups):
        if of not in runs or to not in runs:
            continue
        ours, theirs = runs[of], runs[to]
        if measure == "answers":
            same = [a == b for a, b in zip(ours["answers"], theirs["answers"], strict=True)]
            values.append(sum(same) / len(same))
        else:
            values.append(ours[measure] / theirs[measure])
    return values


def spread(values: Sequence[float]) -> dict[str, float]:
    """{"median", "least", "greatest", "count"}"""
    return {
        "median": statistics.median(values),
        "least": min(values),
        "greatest": max(values),
        "count": len(values),
    }

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[2]

#: The profile of Hypothesis with which test_schedules runs for hours.
MANY_SCHEDULES = "schedules"
settings.register_profile(MANY_SCHEDULES, max_examples=1000)

#: Method and position of the adapters that tests of the session's engine share.
KINDS = [
    ("lora", "prefill"),
    ("lora", "prefill"),
    ("lora", "all"),
    ("direft", "prefill"),
    ("direft", "prefill"),
    ("direft", "all"),
    ("loreft", "prefill"),
    ("loreft", "all"),
]


@pytest.fixture(scope="session")
def base() -> Path:
    """The demo base model's folder (make setup puts it there)."""
    folder = Path(os.environ.get("ATTUNE_MODELS_DIR", ROOT / ".attune" / "models")) / "smollm2-135m-instruct"
    assert (folder / "config.json").exists(), f"there is no base model in {folder}: run `make setup`"
    return folder


@pytest.fixture(scope="session")
def reference(base: Path):
    from tests.inference.reference import Reference

    return Reference(base)


@pytest.fixture(scope="session")
def trainer(base: Path):
    from tests.inference.trainer_side import TrainerSide

    return TrainerSide(base)


@pytest.fixture(scope="session")
def adapters(tmp_path_factory, base: Path) -> list:
    """An adapter of each of KINDS."""
    from tests.inference.adapters import random_adapter

    root = tmp_path_factory.mktemp("adapters")
    return [
        random_adapter(
            root / f"{method}-{position}-{number}", base=base, method=method, position=position, seed=number
        )
        for number, (method, position) in enumerate(KINDS)
    ]


@pytest.fixture(scope="session")
def engine(base: Path) -> Iterator:
    """The one vLLM engine of the session, in this process.

    On one thread: other tests have the other core, and threads that wait for a core that is taken spin.
    """
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
    }
    import torch

    from tests.inference import engine as engines

    torch.set_num_threads(1)
    yield from engines.engine(base)


@pytest.fixture(scope="session")
def served(base: Path, stores, tmp_path_factory) -> Iterator:
    """The one HTTP server of the session, with a local folder of adapters and real S3."""
    from tests.inference import served as servers

    yield from servers.serve(base, tmp_path_factory.mktemp("served"), stores.env)

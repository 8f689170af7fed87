import os
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


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
def engine(base: Path) -> Iterator:
    """The one vLLM engine of the session, in this process."""
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
        "VLLM_NO_USAGE_STATS": "1",
    }
    from tests.inference import engine as engines

    yield from engines.engine(base)


@pytest.fixture(scope="session")
def served(base: Path, stores, tmp_path_factory) -> Iterator:
    """The one HTTP server of the session, with a local folder of adapters and real S3."""
    from tests.inference import served as servers

    yield from servers.serve(base, tmp_path_factory.mktemp("served"), stores.env)

"""The stack that the soak kills: everything real but the engine, with a base model of a few thousand weights."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import boto3
import psycopg
from psycopg.rows import dict_row

from adapters_store.s3 import ObjectStore
from local_stack import stack
from local_stack.home import PARTS
from local_stack.stack import Stack
from tests.soak.engine import SoakEngine
from tests.training_jobs.tiny import tiny_folder

BASE = "tiny"
_PARTS = [part for part in PARTS if part != "engine"]
#: A short job leaves checkpoints as a long one does, only sooner.
_PACE = {"ATTUNE_CHECKPOINT_STEPS": "10", "ATTUNE_CHECKPOINT_SECONDS": "1"}


@dataclass(frozen=True)
class Parts:
    """The running stack and its folder of temporary files, and what there is to look into it with."""

    stack: Stack
    temporary: Path

    def rows(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """As the role of the web application, which sees all. One connection, from one thread."""
        return self._database.execute(query, values or None).fetchall()

    def change(self, query: str) -> None:
        self._database.execute(query)

    def keys(self) -> set[str]:
        """Of all objects of tenants."""
        env = self.stack.env
        client = boto3.client(
            "s3",
            endpoint_url=env["ATTUNE_S3_ENDPOINT_URL"],
            aws_access_key_id=env["ATTUNE_S3_ACCESS_KEY"],
            aws_secret_access_key=env["ATTUNE_S3_SECRET_KEY"],
            region_name="us-east-1",
        )
        pages = client.get_paginator("list_objects_v2").paginate(
            Bucket=env["ATTUNE_S3_BUCKET"], Prefix="tenants/"
        )
        return {found["Key"] for page in pages for found in page.get("Contents", [])}

    @cached_property
    def _database(self) -> "psycopg.Connection[dict[str, Any]]":
        return psycopg.connect(self.stack.env["ATTUNE_DATABASE_URL"], autocommit=True, row_factory=dict_row)

    @property
    def work_dir(self) -> Path:
        return Path(self.stack.env["ATTUNE_WORK_DIR"])


@contextmanager
def parts(*, together: int) -> Iterator[Parts]:
    """Started on a folder of its own, and gone with it. The trainer takes so many jobs `together`."""
    # As root, PostgreSQL runs as nobody and has to reach its files.
    folder = Path(tempfile.mkdtemp(prefix="attune-soak-"))
    folder.chmod(0o755)
    temporary = folder / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    try:
        base = tiny_folder(folder / "models" / BASE)
        (base / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
        with SoakEngine(base) as engine:
            env = {
                "ATTUNE_BASE_MODEL": BASE,
                "ATTUNE_MODELS_DIR": str(folder / "models"),
                "ATTUNE_ENGINE_URL": engine.url,
                "TMPDIR": str(temporary),
                "ATTUNE_TOGETHER": str(together),
                **_PACE,
            }
            with stack.start(parts=_PARTS, home=folder, env=env) as running:
                engine.store = store_of(running.env)
                yield Parts(running, temporary)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def store_of(env: dict[str, str]) -> ObjectStore:
    return ObjectStore(
        endpoint_url=env["ATTUNE_S3_ENDPOINT_URL"],
        bucket=env["ATTUNE_S3_BUCKET"],
        access_key=env["ATTUNE_S3_ACCESS_KEY"],
        secret_key=env["ATTUNE_S3_SECRET_KEY"],
    )

"""The parts that tests run on: real PostgreSQL, Valkey and S3, started once a session when a test first needs them.

Their addresses are known before they run, so that Django can be set up at once. `tests/webapp` uses the stores alone;
tests marked `stack` use everything, engine and trainer included, on a data folder of their own.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local_stack import stack as local_stack
from local_stack.home import Home
from local_stack.plan import plan

STORES = ("postgres", "valkey", "s3")
_HOME = pytest.StashKey[Path]()


def pytest_configure(config: pytest.Config) -> None:
    """Point Django at stores that `stores` will start."""
    # Not below pytest's own folder: as root, PostgreSQL runs as nobody and has to reach its files.
    home = Path(tempfile.mkdtemp(prefix="attune-test-"))
    home.chmod(0o755)
    config.stash[_HOME] = home
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ATTUNE_")}
    os.environ.update(plan(Home(home), parts=STORES, environ=environ, fast=True).env)
    os.environ.update(
        DJANGO_SETTINGS_MODULE="webapp.config.django",
        ATTUNE_PUBLIC_URL="http://127.0.0.1:8000",
        # Nobody answers there; tests that need an engine bring one.
        ATTUNE_ENGINE_URL="http://127.0.0.1:9",
        ATTUNE_LOG_LEVEL="WARNING",
    )
    from django.conf import settings

    # Read once, so that pytest-django finds Django configured.
    assert settings.DATABASES


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash.get(_HOME, Path("/nonexistent")), ignore_errors=True)


@pytest.fixture(scope="session")
def stores(pytestconfig: pytest.Config) -> Iterator[local_stack.Stack]:
    """PostgreSQL, Valkey and S3, empty."""
    with pytest.MonkeyPatch.context() as patch:
        # Addresses in the environment would keep the stack from starting these parts itself.
        for name in [name for name in os.environ if name.startswith("ATTUNE_")]:
            patch.delenv(name)
        running = local_stack.start(parts=STORES, home=pytestconfig.stash[_HOME])
    with running:
        for name in ("ATTUNE_DATABASE_URL", "ATTUNE_BROKER_URL", "ATTUNE_S3_ENDPOINT_URL"):
            assert running.env[name] == os.environ[name], "the stores did not start where they were planned"
        yield running


@pytest.fixture(scope="session")
def django_db_setup(stores: local_stack.Stack, django_db_blocker: Any) -> Iterator[None]:
    """The tables, made by the owner; tests use them as the web's role, like the web process."""
    import psycopg
    from django.core.management import call_command
    from django.db import connections

    with django_db_blocker.unblock():
        call_command("migrate", verbosity=0)
    with psycopg.connect(os.environ["ATTUNE_DATABASE_OWNER_URL"]) as owner:
        # For tests that commit: they empty the tables afterwards.
        owner.execute("GRANT TRUNCATE ON ALL TABLES IN SCHEMA public TO attune_web")
    yield
    with django_db_blocker.unblock():
        connections["default"].close()
        connections["default"].close_pool()

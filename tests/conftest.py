"""The parts that tests run on: real PostgreSQL, Valkey and S3, started once a session when a test first needs them.

Their addresses are known before they run, so that Django can be set up at once. `tests/webapp` uses the stores alone;
tests marked `stack` use everything, engine and trainer included, on a data folder of their own.
"""

import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local_stack import processes
from local_stack import stack as local_stack
from local_stack.home import STORES, Home
from local_stack.plan import plan
from tests.local_stack.gone import all_gone

# What the imports make stays to the end: looking through it for garbage, now and in every test, takes long and finds
# nothing.
gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.freeze()
    gc.enable()


def _point_django_at(home: Path) -> None:
    """Django's settings name the stores that `stores` will start."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ATTUNE_")}
    os.environ.update(plan(Home(home), parts=STORES, environ=environ, fast=True).env)
    os.environ.update(
        DJANGO_SETTINGS_MODULE="webapp.config.django",
        ATTUNE_PUBLIC_URL="http://127.0.0.1:8000",
        # Nobody answers there; tests that need an engine bring one.
        ATTUNE_ENGINE_URL="http://127.0.0.1:9",
        ATTUNE_LOG_LEVEL="WARNING",
    )
    import django
    from django.conf import settings

    django.setup()
    # The real one takes a second a password, on purpose.
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    # Were it inherited by pytest-xdist's workers, they would load the settings before their own stores are planned.
    del os.environ["DJANGO_SETTINGS_MODULE"]


# Not below pytest's own folder: as root, PostgreSQL runs as nobody and has to reach its files.
_home = Path(tempfile.mkdtemp(prefix="attune-test-"))
_home.chmod(0o755)
# At import, because the test modules import Django's models.
_point_django_at(_home)


#: Fixtures that start vLLM: a minute and gigabytes each, so one of each for all tests.
ENGINES = ("stack", "engine", "served")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For `--dist loadgroup`: modules that use the same engine go to one process, all others each to any."""
    engines = {
        item.path: name for item in items for name in ENGINES if name in getattr(item, "fixturenames", ())
    }
    for item in items:
        item.add_marker(pytest.mark.xdist_group(engines.get(item.path, item.path.stem)))


def pytest_unconfigure() -> None:
    shutil.rmtree(_home, ignore_errors=True)


@pytest.fixture(scope="session")
def stores() -> Iterator[local_stack.Stack]:
    """PostgreSQL, Valkey and S3, empty."""
    with pytest.MonkeyPatch.context() as patch:
        # Addresses in the environment would keep the stack from starting these parts itself.
        for name in [name for name in os.environ if name.startswith("ATTUNE_")]:
            patch.delenv(name)
        running = local_stack.start(parts=STORES, home=_home)
    with running:
        for name in ("ATTUNE_DATABASE_URL", "ATTUNE_BROKER_URL", "ATTUNE_S3_ENDPOINT_URL"):
            assert running.env[name] == os.environ[name], "the stores did not start where they were planned"
        yield running


@pytest.fixture(scope="session")
def django_db_setup(stores: local_stack.Stack, django_db_blocker: Any) -> Iterator[None]:
    """The tables, made by the owner; tests use them as the web's role, like the web process."""
    from django.core.management import call_command
    from django.db import connections
    from django.test import TransactionTestCase

    with django_db_blocker.unblock():
        call_command("migrate", verbosity=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", _empty_tables)
        yield
    with django_db_blocker.unblock():
        connections["default"].close()
        connections["default"].close_pool()


def _empty_tables(case: object) -> None:
    """After a test that commits. Django's own flush is a hundred times slower, and asks for a table's owner."""
    from django.db import connection

    kept = {"django_migrations", "django_content_type", "auth_permission"}
    tables = [name for name in connection.introspection.table_names() if name not in kept]
    # Foreign keys are checked at the end of the transaction, so any order will do.
    with connection.cursor() as cursor:
        cursor.execute(";".join(["BEGIN", *(f'DELETE FROM "{name}"' for name in tables), "COMMIT"]))


@pytest.fixture(scope="session")
def stack() -> Iterator[local_stack.Stack]:
    """Everything, engine and trainer included: one for all tests marked `stack`, on a data folder of its own.

    It ends by Ctrl-C, and then nothing of it may be left.
    """
    home = Path(tempfile.mkdtemp(prefix="attune-stack-"))
    home.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        models = os.environ["ATTUNE_MODELS_DIR"]
        for name in [name for name in os.environ if name.startswith("ATTUNE_")]:
            patch.delenv(name)
        running = local_stack.start(
            home=home, env={"ATTUNE_MODELS_DIR": models, "ATTUNE_SIGNUP_OPEN": "true"}
        )
    with running:
        yield running
        guard = int(running.state["pid"])
        family = {found.pid for found in processes.descendants(guard)}
        os.kill(guard, signal.SIGINT)
        assert all_gone(family), "five seconds after Ctrl-C something is left"
    shutil.rmtree(home, ignore_errors=True)

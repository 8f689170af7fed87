"""What the web process insists on before it serves anybody."""

import os
import subprocess
import sys
from urllib.parse import urlencode

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.db import ConnectionHandler, OperationalError
from psycopg.conninfo import conninfo_to_dict

from webapp.config.database import assert_owns_nothing, database, grant_to_web
from webapp.config.settings import settings

pytestmark = pytest.mark.django_db


def test_the_web_role_owns_no_table(django_db_setup: None) -> None:
    assert_owns_nothing(settings().database_url)
    with psycopg.connect(settings().database_url) as web:
        assert web.execute("SELECT count(*) FROM tenants_tenant").fetchone() is not None
        for forbidden in (
            "DROP TABLE jobs_job",
            "ALTER TABLE jobs_job ADD x int",
            "CREATE TABLE public.mine (x int)",
        ):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), web.transaction():
                web.execute(forbidden)


def test_an_owner_is_refused(django_db_setup: None) -> None:
    with pytest.raises(ImproperlyConfigured, match=r"owns \d+ tables"):
        assert_owns_nothing(settings().database_owner_url)


class TestParametersOfTheUrl:
    """Whatever libpq knows holds for Django's connections, and for the look at the role before them."""

    ASKED = "options=-c%20statement_timeout%3D4321&application_name=attune-mine&connect_timeout=7"

    @pytest.fixture
    def url(self, django_db_setup: None) -> str:
        url = settings().database_url
        return f"{url}{'&' if '?' in url else '?'}{self.ASKED}"

    @pytest.mark.parametrize("pool", [None, {"min_size": 1, "max_size": 2, "timeout": 10}])
    def test_hold_in_django(self, url: str, pool: dict[str, int] | None) -> None:
        # Not "default": a pool is known by this name, and the tests' own is.
        theirs = ConnectionHandler({"default": {}, "theirs": database(url, pool=pool)})["theirs"]
        try:
            with theirs.cursor() as cursor:
                cursor.execute(
                    "SELECT current_setting('statement_timeout'), current_setting('application_name')"
                )
                assert cursor.fetchone() == ("4321ms", "attune-mine")
            assert theirs.get_connection_params()["connect_timeout"] == "7"
        finally:
            theirs.close()
            theirs.close_pool()

    def test_an_unverified_server_is_refused_by_both(self, url: str) -> None:
        """The test's server has no certificate."""
        parts = conninfo_to_dict(url) | {"host": "localhost", "sslmode": "verify-full"}
        url = f"postgresql://?{urlencode(parts)}"
        with pytest.raises(psycopg.OperationalError, match=r"certificate|SSL"):
            assert_owns_nothing(url)
        theirs = ConnectionHandler({"default": database(url)})["default"]
        with pytest.raises(OperationalError, match=r"certificate|SSL"):
            theirs.ensure_connection()

    def test_what_libpq_does_not_know(self, url: str) -> None:
        with pytest.raises(psycopg.ProgrammingError, match='invalid URI query parameter: "sslmod"'):
            database(f"{url}&sslmod=require")


@pytest.mark.slow
def test_the_process_does_not_start_as_owner(django_db_setup: None) -> None:
    env = {**os.environ, "ATTUNE_DATABASE_URL": settings().database_owner_url}
    done = subprocess.run(
        [sys.executable, "-c", "import webapp.config.asgi"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "Give the web process a role of its own" in done.stderr


def test_granting_again_changes_nothing(django_db_setup: None) -> None:
    grant_to_web(owner_url=settings().database_owner_url, web_url=settings().database_url)
    assert_owns_nothing(settings().database_url)


@pytest.mark.slow
def test_missing_settings_are_all_named() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("ATTUNE_")}
    env["ATTUNE_PUBLIC_URL"] = "not a url"
    done = subprocess.run(
        [sys.executable, "manage.py", "check"], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    for name in ("Set ATTUNE_DATABASE_URL;", "Set ATTUNE_S3_BUCKET;", "ATTUNE_PUBLIC_URL"):
        assert name in done.stderr


@pytest.mark.slow
def test_no_torch_in_webapp() -> None:
    """Importing everything of the web process loads neither torch nor a model library."""
    code = """
import sys, pkgutil, importlib, django
django.setup()
import webapp
for module in pkgutil.walk_packages(webapp.__path__, "webapp."):
    if not module.name.endswith("asgi"):
        importlib.import_module(module.name)
assert not {"torch", "transformers", "peft", "vllm", "huggingface_hub"} & set(sys.modules)
"""
    env = {**os.environ, "DJANGO_SETTINGS_MODULE": "webapp.config.django"}
    subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, timeout=60)


def test_migrations_are_complete() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)


@pytest.mark.slow
def test_deployment_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    env = {**os.environ, "ATTUNE_PUBLIC_URL": "https://attune.example"}
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--deploy", "--fail-level", "WARNING"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

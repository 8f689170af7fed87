"""Two PostgreSQL roles: one owns the tables and migrates them, the other serves requests and owns nothing.

And the one lock that is no row's.
"""

import hashlib
from typing import Any

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import connection
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

_OWNED = """
SELECT r.rolsuper OR r.rolbypassrls, (
    SELECT count(*) FROM pg_catalog.pg_tables
    WHERE schemaname NOT IN ('pg_catalog', 'information_schema') AND pg_has_role(current_user, tableowner, 'MEMBER')
) FROM pg_catalog.pg_roles r WHERE r.rolname = current_user
"""


def database(url: str, *, pool: dict[str, int] | None = None) -> dict[str, Any]:
    """An entry of Django's DATABASES. A socket's folder is given as postgresql://user@/name?host=/folder.

    All that libpq knows (sslmode, options, …) counts in the URL; what it does not know is a psycopg.ProgrammingError.
    """
    parts = conninfo_to_dict(url)
    named = {
        "NAME": parts.pop("dbname", ""),
        "USER": parts.pop("user", ""),
        "PASSWORD": parts.pop("password", ""),
        "HOST": parts.pop("host", ""),
        "PORT": str(parts.pop("port", "")),
    }
    options = {**parts, "pool": pool} if pool else parts
    return {"ENGINE": "django.db.backends.postgresql", **named, "OPTIONS": options}


def advisory_lock(name: str) -> None:
    """Until the transaction ends, nobody else holds the lock of this name."""
    number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [number])


def assert_owns_nothing(url: str) -> None:
    """Raise ImproperlyConfigured unless the web's role is an ordinary one that owns no table.

    An owner could switch row-level security off and drop tables; a bug in a view should not be able to.
    """
    with _connected(url) as web:
        row = web.execute(_OWNED).fetchone()
    assert row is not None
    all_powerful, owned = row
    if all_powerful or owned:
        what = "is a superuser or bypasses row security" if all_powerful else f"owns {owned} tables"
        raise ImproperlyConfigured(
            f"The role in ATTUNE_DATABASE_URL {what}. Give the web process a role of its own that owns nothing, "
            "and put the owner's URL in ATTUNE_DATABASE_OWNER_URL, which only `manage.py migrate` uses."
        )


def grant_to_web(*, owner_url: str, web_url: str) -> None:
    """Let the web's role read and write rows of every table, now and after later migrations.

    Creates the role, with the password of its URL, if it is not there; the owner needs CREATEROLE for that once.
    """
    web = conninfo_to_dict(web_url)
    role = sql.Identifier(str(web["user"]))
    with _connected(owner_url) as owner:
        there = owner.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [web["user"]]).fetchone()
        if there is None:
            password = sql.Literal(web["password"]) if web.get("password") else sql.SQL("NULL")
            owner.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(role, password))
        for statement in (
            "GRANT USAGE ON SCHEMA public TO {}",
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {}",
            "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {}",
            "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {}",
            "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO {}",
        ):
            owner.execute(sql.SQL(statement).format(role))


def _connected(url: str) -> psycopg.Connection:
    return psycopg.connect(**{"connect_timeout": 10, **conninfo_to_dict(url)})

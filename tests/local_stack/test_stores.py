"""PostgreSQL, Valkey and S3 as `make up` starts them: real operations, least privilege, no orphans."""

import json
import os
import time
import urllib.error
import urllib.request
from pathlib import Path

import psycopg
import pytest
import redis
from botocore.exceptions import ClientError

from local_stack import processes, stack
from local_stack.home import STORES, StackError
from local_stack.seaweedfs import s3_client


@pytest.fixture(scope="module")
def home(public_for_module: Path) -> Path:
    return public_for_module


@pytest.fixture(scope="module")
def running(home: Path):
    with stack.start(parts=STORES, home=home) as running:
        yield running


def s3_of(running: stack.Stack, who: str = "web"):
    secrets = running.home.secrets()
    return s3_client(running.urls["s3"], secrets[f"s3_{who}_id"], secrets[f"s3_{who}_key"])


def test_the_web_role_owns_nothing_and_may_only_write_rows(running: stack.Stack):
    with psycopg.connect(running.env["ATTUNE_DATABASE_OWNER_URL"], autocommit=True) as owner:
        owner.execute("CREATE TABLE IF NOT EXISTS later (id serial PRIMARY KEY, word text)")
    with psycopg.connect(running.env["ATTUNE_DATABASE_URL"], autocommit=True) as web:
        web.execute("INSERT INTO later (word) VALUES ('hello')")
        assert web.execute("SELECT word FROM later").fetchone() == ("hello",)
        role = web.execute(
            "SELECT rolsuper, rolbypassrls, rolcreatedb, rolcreaterole FROM pg_roles WHERE rolname = current_user"
        ).fetchone()
        assert role == (False, False, False, False)
        owned = web.execute("SELECT count(*) FROM pg_tables WHERE tableowner = current_user").fetchone()
        assert owned == (0,)
        for forbidden in ("CREATE TABLE own (id int)", "DROP TABLE later", "TRUNCATE later"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                web.execute(forbidden)


def test_a_test_database_gives_the_web_role_the_same_rights(running: stack.Stack):
    owner_url, web_url = (running.env[f"ATTUNE_DATABASE_{kind}URL"] for kind in ("OWNER_", ""))
    with psycopg.connect(owner_url, autocommit=True) as owner:
        owner.execute("CREATE DATABASE another")
    with psycopg.connect(owner_url, dbname="another", autocommit=True) as owner:
        owner.execute("CREATE TABLE rows (id serial PRIMARY KEY)")
    with psycopg.connect(web_url, dbname="another", autocommit=True) as web:
        web.execute("INSERT INTO rows DEFAULT VALUES")


def test_failing_statements_do_not_reach_the_log(running: stack.Stack):
    with psycopg.connect(running.env["ATTUNE_DATABASE_OWNER_URL"], autocommit=True) as owner:
        owner.execute("CREATE TABLE IF NOT EXISTS secretive (word text UNIQUE)")
        owner.execute("INSERT INTO secretive VALUES ('canary-4711')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            owner.execute("INSERT INTO secretive VALUES ('canary-4711')")
    log = running.log("postgres")
    assert "duplicate key" in log
    assert "canary-4711" not in log


@pytest.mark.slow
def test_passwords_are_wanted_everywhere(running: stack.Stack):
    with pytest.raises(psycopg.OperationalError, match="password"):
        psycopg.connect(running.env["ATTUNE_DATABASE_URL"], password="wrong")
    port = int(running.urls["valkey"].rpartition(":")[2])
    with pytest.raises(redis.AuthenticationError):
        redis.Redis(port=port).ping()
    assert redis.Redis.from_url(running.env["ATTUNE_BROKER_URL"]).ping()


def test_s3_knows_who_may_what(running: stack.Stack):
    web, engine = s3_of(running), s3_of(running, "engine")
    web.put_object(Bucket="attune", Key="tenants/a/x", Body=b"bytes")
    assert engine.get_object(Bucket="attune", Key="tenants/a/x")["Body"].read() == b"bytes"
    for refused in (
        lambda: engine.put_object(Bucket="attune", Key="tenants/a/x", Body=b"other"),
        lambda: engine.delete_object(Bucket="attune", Key="tenants/a/x"),
        lambda: web.create_bucket(Bucket="more"),
        lambda: s3_client(running.urls["s3"], "nobody", "knows").list_buckets(),
    ):
        with pytest.raises(ClientError):
            refused()
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"{running.urls['s3']}/attune/tenants/a/x")
    assert error.value.code == 403
    filer = json.loads((running.home.run / "ports.json").read_text())["s3_filer"]
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(f"http://127.0.0.1:{filer}/buckets/attune/tenants/a/x")
    assert error.value.code in (401, 403)


def test_everything_listens_on_loopback_only(running: stack.Stack):
    pids = {process.pid for process in processes.descendants(running.state["pid"])}
    sockets = set()
    for pid in pids:
        for file in Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(file) if file.is_symlink() else ""
            if target.startswith("socket:["):
                sockets.add(target[8:-1])
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and columns[9] in sockets:
                listening.append(columns[1].split(":")[0])
    assert listening
    assert set(listening) == {"0100007F"}


def test_secrets_and_state_are_private(running: stack.Stack):
    for path in (running.home.folder / "secrets.json", running.home.state_file, running.home.log("postgres")):
        assert path.stat().st_mode & 0o077 == 0, path


def test_one_stack_a_data_folder(running: stack.Stack, home: Path):
    with pytest.raises(StackError, match="already running"):
        stack.start(parts=STORES, home=home)


@pytest.mark.slow
def test_a_killed_part_comes_back_with_its_data(running: stack.Stack):
    broker = redis.Redis.from_url(running.env["ATTUNE_BROKER_URL"])
    broker.set("kept", "yes")
    with psycopg.connect(running.env["ATTUNE_DATABASE_OWNER_URL"], autocommit=True) as owner:
        owner.execute("CREATE TABLE IF NOT EXISTS kept (id int)")
        owner.execute("INSERT INTO kept VALUES (1)")
    s3_of(running).put_object(Bucket="attune", Key="kept", Body=b"yes")
    time.sleep(1.1)  # Valkey writes its log to disk each second
    before = {part: running.pid(part) for part in STORES}
    for part in STORES:
        running.kill(part)
    for part in STORES:
        running.wait_ready(part, restarts=1, timeout=30)
    assert all(running.pid(part) != before[part] for part in STORES)
    assert redis.Redis.from_url(running.env["ATTUNE_BROKER_URL"]).get("kept") == b"yes"
    with psycopg.connect(running.env["ATTUNE_DATABASE_URL"]) as web:
        assert web.execute("SELECT count(*) FROM kept").fetchone() == (1,)
    assert s3_of(running).get_object(Bucket="attune", Key="kept")["Body"].read() == b"yes"

"""Attune's own processes: migrations, web, dispatcher, trainer and engine."""

import signal
import sys
from pathlib import Path
from socket import gethostname

import psycopg
from celery import Celery

from local_stack.home import ROOT, Home
from local_stack.service import CommandReady, NotReadyError, Service, http_ready

Environ = dict[str, str]
#: Seconds that an engine may take to start: a minute on an idle machine, but it shares its cores.
PATIENCE = 900.0


def migrate(*, env: Environ, needs: tuple[str, ...]) -> Service:
    """The only process that may change tables: it alone is given the owner's URL."""
    command = (sys.executable, "manage.py", "migrate", "--verbosity", "1")
    return Service(name="migrate", command=command, env=env, cwd=ROOT, needs=needs, once=True, patience=120)


def base_model(*, env: Environ, folder: Path, needs: tuple[str, ...]) -> Service:
    """Enter the base model that is served in the catalogue, if it is new, as the one that jobs and chats use."""
    command = (sys.executable, "manage.py", "base_model_add", str(folder), "--default")
    return Service(
        name="base-model", command=command, env=env, cwd=ROOT, needs=needs, once=True, patience=120
    )


def web(*, env: Environ, port: int, needs: tuple[str, ...]) -> Service:
    command = [sys.executable, "-m", "uvicorn", "webapp.config.asgi:application"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--no-access-log"]
    command += ["--timeout-graceful-shutdown", "1"]
    url = f"http://127.0.0.1:{port}"
    return Service(
        name="web",
        command=tuple(command),
        env=env,
        cwd=ROOT,
        needs=needs,
        url=url,
        grace=0.6,
        ready=http_ready(f"{url}/healthz"),
    )


def dispatcher(*, env: Environ, needs: tuple[str, ...]) -> Service:
    """Has no port; ready when it is seen at work in the database."""
    command = (sys.executable, "manage.py", "dispatch")
    named = {**env, "PGAPPNAME": "attune-dispatcher"}

    def ready() -> None:
        with psycopg.connect(env["ATTUNE_DATABASE_URL"], connect_timeout=2) as connection:
            found = connection.execute(
                "SELECT 1 FROM pg_stat_activity WHERE application_name = %s", [named["PGAPPNAME"]]
            )
            if not found.fetchone():
                raise NotReadyError("it has not connected to the database")

    return Service(
        name="dispatcher", command=command, env=named, cwd=ROOT, needs=needs, ready=ready, grace=2.0
    )


def trainer(*, env: Environ, needs: tuple[str, ...]) -> Service:
    """One job at a time; ready when it answers a ping through the broker."""
    name = f"trainer@{gethostname()}"
    broker = env["ATTUNE_BROKER_URL"]

    def ready() -> None:
        with Celery(broker=broker) as client:
            if not client.control.ping(destination=[name], timeout=0.5):
                raise NotReadyError("the worker does not answer a ping")

    return Service(
        name="trainer",
        command=(sys.executable, "-m", "training_jobs"),
        env={**env, "ATTUNE_LEAVE_SECONDS": "1"},  # everything is gone five seconds after Ctrl-C
        cwd=ROOT,
        needs=needs,
        ready=ready,
        patience=120,
        grace=2.0,  # to leave a checkpoint and give the job back; what is not given back, the lease returns
        death_signal=signal.SIGKILL,  # SIGTERM would let it finish; its child sees within a second that it is alone
    )


def engine(home: Home, *, env: Environ, port: int) -> Service:
    """vLLM with the plugin. Ready when a generated token equals the one that transformers gives."""
    url = f"http://127.0.0.1:{port}"
    # Begun beside the engine: while that imports vLLM on one core, this computes what the engine will have to say.
    ready = CommandReady(
        (sys.executable, "-m", "inference.ready", "--wait", f"{PATIENCE:.0f}"),
        env,
        ROOT,
        home.log("engine-ready"),
        wrong=3,
    )
    return Service(
        name="engine",
        command=(sys.executable, "-m", "inference.serve"),
        env=env,
        cwd=ROOT,
        ready=ready,
        url=url,
        patience=PATIENCE,
        grace=2.0,
    )

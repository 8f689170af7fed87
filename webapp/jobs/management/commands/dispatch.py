"""`python manage.py dispatch`: the process that moves jobs on. Any number may run; row locks keep them apart."""

import gc
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import structlog
from django.core.management.base import BaseCommand
from django.db import close_old_connections, connection

from adapters_store.traces import trace
from webapp.adapters.forgetting import forgettings_send
from webapp.config.database import assert_owns_nothing
from webapp.config.settings import settings
from webapp.engine import engine
from webapp.jobs.dispatcher import dispatch_all, prepare_all
from webapp.jobs.gate import gate_all
from webapp.jobs.hearing import Hearing
from webapp.jobs.lifecycle import dispatch_lapse, lease_lapse
from webapp.jobs.sweeper import answers_forget, files_expire, objects_sweep
from webapp.jobs.workers import workers_forget

_log = structlog.get_logger("attune.dispatch")
_ROUND_SECONDS = 0.5
_SWEEP_SECONDS = 10.0
_ENGINE_AWAY_SECONDS = 5.0


class Command(BaseCommand):
    help = "Prepare, dispatch, gate and sweep jobs until SIGTERM."

    def handle(self, *args: Any, **options: Any) -> None:
        assert_owns_nothing(settings().database_url)
        stop = threading.Event()
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, lambda *_: stop.set())
        # The engine may take a minute to answer, a large file as long to be read: dispatching must wait for neither.
        for name, rounds in (("engine", _gates), ("files", _files)):
            threading.Thread(target=rounds, args=(stop,), name=name, daemon=True).start()
        hearing, swept = Hearing(), 0.0

        def leases_lapse() -> None:
            lease_lapse(heard=hearing.steady())

        while not stop.is_set():
            for step in (leases_lapse, dispatch_lapse, dispatch_all):
                _guarded(step)
            if time.monotonic() - swept > _SWEEP_SECONDS:
                for step in (objects_sweep, files_expire, answers_forget, workers_forget):
                    _guarded(step)
                swept = time.monotonic()
            close_old_connections()
            stop.wait(_ROUND_SECONDS)
        connection.close()
        # Left to the interpreter's end, the pool waits five seconds for threads that are stopped, and the collection of
        # all that was ever imported takes more than one: longer than the local stack waits.
        connection.close_pool()
        gc.freeze()


def _gates(stop: threading.Event) -> None:
    while not stop.is_set():
        here = _guarded(_gate_round) and _guarded(_forget_round)
        close_old_connections()
        stop.wait(_ROUND_SECONDS if here else _ENGINE_AWAY_SECONDS)


def _files(stop: threading.Event) -> None:
    while not stop.is_set():
        _guarded(prepare_all)
        close_old_connections()
        stop.wait(_ROUND_SECONDS)


def _gate_round() -> bool:
    return gate_all(asked=engine())


def _forget_round() -> bool:
    return forgettings_send(asked=engine())


def _guarded(step: Callable[[], Any]) -> Any:
    """One fault (the database restarting, the broker away) must not end the process."""
    try:
        return step()
    except Exception as error:
        _log.warning("round failed", step=step.__name__, error=trace(error))
        close_old_connections()
        return None

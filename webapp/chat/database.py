"""The database from async code: a query borrows a connection and gives it back, so that no stream holds one."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections

_P = ParamSpec("_P")
_R = TypeVar("_R")


async def in_database(query: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Run `query` in a thread of its own and close that thread's connections behind it (a pool takes them back)."""

    def run() -> _R:
        try:
            return query(*args, **kwargs)
        finally:
            connections.close_all()

    # Not the request's own thread: this must also work after the request is over, when a reader has left.
    return await sync_to_async(run, thread_sensitive=False)()

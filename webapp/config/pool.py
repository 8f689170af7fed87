"""The process's database connections are few, and whoever holds one keeps it from others: heartbeats among them."""

from django.db import OperationalError, connection
from psycopg_pool import PoolTimeout

from webapp.config.faults import Unavailable


def connection_give_back() -> None:
    """Before work that takes a while without the database. The next query takes one again.

    Within a transaction nothing happens: it is the transaction's.
    """
    if not connection.in_atomic_block:
        connection.close()


def pool_fault(error: BaseException | None) -> Unavailable | None:
    """What to tell a caller for whom no connection came free in time; None for any other error."""
    if isinstance(error, OperationalError) and isinstance(error.__cause__, PoolTimeout):
        return Unavailable(
            "There are too many requests at the moment. Try again shortly.", code="database_busy"
        )
    return None

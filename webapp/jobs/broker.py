"""Messages to trainers. The broker may lose any of them: the database knows, and sends again."""

from functools import lru_cache

from celery import Celery
from kombu.exceptions import OperationalError

from training_jobs.messages import TASK, queue_name
from webapp.config.faults import Unavailable
from webapp.config.settings import settings


@lru_cache(maxsize=1)
def _celery() -> Celery:
    app = Celery("attune", broker=settings().broker_url, set_as_current=False)
    app.conf.update(
        broker_connection_timeout=3,
        broker_transport_options={"socket_timeout": 5, "socket_connect_timeout": 3},
        task_ignore_result=True,
    )
    return app


def send_train(*, jobs: dict[str, str], base: str) -> None:
    """Put one message on the queue of a base model: ids of jobs and their tokens, never data. Raises Unavailable."""
    try:
        _celery().send_task(
            TASK,
            kwargs={"jobs": jobs},
            # Celery writes it into a header that monitors show: it is not to hold the tokens.
            kwargsrepr=repr({"jobs": [*jobs]}),
            queue=queue_name(base),
            retry=False,
        )
    except (OperationalError, OSError) as error:
        raise Unavailable(
            f"The broker cannot be reached ({type(error).__name__}).", code="broker_unavailable"
        ) from None

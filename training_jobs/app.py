"""The Celery app. Messages carry ids of jobs and their tokens, never data; results are told to the web application.

Start it with `python -m training_jobs`, or `celery -A training_jobs.app worker -Q train.<base> -c 1`.
"""

from celery import Celery

import training_jobs.offline  # noqa: F401 (before anything imports transformers)
from training_jobs.settings import settings

app = Celery(
    "training_jobs",
    broker=settings().broker_url.get_secret_value(),
    include=["training_jobs.tasks"],
    fixups=[],  # Celery would import Django wherever DJANGO_SETTINGS_MODULE happens to be set
)
app.conf.update(
    # A message is a hint that the database can repeat: acknowledged at once, and never fetched ahead of the job that
    # runs, or it would wait here while another trainer is idle.
    task_acks_late=False,
    worker_prefetch_multiplier=1,
    worker_disable_prefetch=True,
    worker_concurrency=1,
    # A new child has to say so within this; after Celery's own four seconds a busy machine would never get one.
    worker_proc_alive_timeout=120.0,
    task_ignore_result=True,
    result_backend=None,
    accept_content=["json"],
    worker_send_task_events=False,
    # A broker that is away is no reason to end; the sockets must not hang on a dead peer.
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    broker_transport_options={"socket_timeout": 10, "socket_connect_timeout": 5, "socket_keepalive": True},
    worker_hijack_root_logger=True,
)

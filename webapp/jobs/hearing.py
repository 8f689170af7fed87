"""Whether trainers can be heard at all: if none is, it is not one of them that fell silent, but we who are deaf."""

import time
from collections.abc import Callable
from datetime import timedelta

from django.db.models.functions import Now

from training_jobs.messages import HEARTBEAT_SECONDS, PRESENCE_SECONDS
from webapp.jobs.models import Worker

#: Without a hello of anybody for so long, the web application, the database or the network was away.
_BREAK = timedelta(seconds=2 * PRESENCE_SECONDS + 1)
#: Afterwards every living trainer has said that it still has its job.
_SETTLED_SECONDS = 2.0 * HEARTBEAT_SECONDS


class Hearing:
    """In the memory of one dispatcher, which begins by listening. `clock`: seconds that only grow."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None

    def steady(self) -> bool:
        """Trainers have been heard without a break for long enough to miss one of them. To be asked all the time."""
        if not Worker.objects.filter(last_seen__gt=Now() - _BREAK).exists():
            self._since = None
            return False
        if self._since is None:
            self._since = self._clock()
        return self._clock() - self._since >= _SETTLED_SECONDS

"""The engine keeps copies of adapters: those of a removed one go, too, however often the engine has to be told."""

from datetime import timedelta

import httpx
import structlog
from django.db.models.functions import Now

from webapp.adapters.models import Forgetting
from webapp.engine import Engine

_log = structlog.get_logger("attune.adapters")
_BATCH = 200
_PAUSE = timedelta(seconds=30)
#: A download or a prompt that was under way when its manifest went has ended by then.
_ONCE_MORE = timedelta(minutes=10)
_SECONDS = 10.0


def adapter_forget(*, name: str) -> None:
    """Within the transaction that removes the manifest from storage, after which no engine can fetch it again."""
    Forgetting.objects.bulk_create(
        Forgetting(name=name, not_before=moment) for moment in (Now(), Now() + _ONCE_MORE)
    )


def forgettings_send(*, asked: Engine) -> bool:
    """Tell the engine of every adapter that is due; whether it was there. What it was not told stays on the list."""
    due = Forgetting.objects.filter(not_before__lte=Now()).order_by("not_before", "id")
    for row in list(due[:_BATCH]):
        status = _told(row.name, asked)
        # 404: it never had it.
        if status in (200, 404):
            row.delete()
            continue
        Forgetting.objects.filter(id=row.id).update(not_before=Now() + _PAUSE)
        _log.warning("engine did not forget an adapter", status=status)
        if status is None:
            return False
    return True


def _told(name: str, asked: Engine) -> int | None:
    """The engine's status; None if it is away."""
    try:
        return asked.forget(name, seconds=_SECONDS).status_code
    except httpx.HTTPError:
        return None

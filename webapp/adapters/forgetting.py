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
        told = _told(row.name, asked)
        if told is not None and _is_gone(told):
            row.delete()
            continue
        Forgetting.objects.filter(id=row.id).update(not_before=Now() + _PAUSE)
        if told is not None and told.status_code == 200:
            _log.info("engine forgets an adapter once no prompt needs it")
        else:
            _log.warning("engine did not forget an adapter", status=told and told.status_code)
        if told is None:
            return False
    return True


def _told(name: str, asked: Engine) -> httpx.Response | None:
    """The engine's answer; None if it is away."""
    try:
        return asked.forget(name, seconds=_SECONDS)
    except httpx.HTTPError:
        return None


def _is_gone(told: httpx.Response) -> bool:
    """404: it never had it. What a prompt needs is still there, in memory and slots."""
    return told.status_code == 404 or (told.status_code == 200 and not told.json().get("in_use"))

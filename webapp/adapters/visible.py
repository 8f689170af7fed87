"""The adapters that exist for a caller: the one place that says so, for the API, the gateway and the dashboard.

An adapter says what it was trained on, so it is for whoever may read that (webapp/datasets/readers.py).
"""

from django.db.models import Q, QuerySet

from webapp.adapters.models import Adapter
from webapp.config.faults import BadRequest
from webapp.datasets.readers import readable_by
from webapp.jobs.models import State
from webapp.tenants.scope import Scope


def adapters_visible(scope: Scope) -> QuerySet[Adapter]:
    """What the caller may look at: a tenant-wide adapter is everybody's in the tenant.

    Among them are those that did not pass the gate, which are kept for that and answer nobody (`check_passed`).
    """
    rows = Adapter.objects.filter(
        readable_by(scope, "job__training_file__"), tenant=scope.tenant, deleted_at=None
    )
    if scope.end_user is not None:
        rows = rows.filter(Q(end_user=scope.end_user) | Q(end_user=None))
    return rows.select_related("tenant", "base", "job", "end_user")


def adapters_usable(scope: Scope) -> QuerySet[Adapter]:
    """What the caller may list, name and talk to."""
    return adapters_visible(scope).filter(job__state=State.SUCCEEDED)


def adapters_owned(scope: Scope) -> QuerySet[Adapter]:
    """What the caller may also activate and delete: a tenant-wide adapter only if they act for the tenant."""
    rows = adapters_visible(scope)
    return rows if scope.end_user is None else rows.filter(end_user=scope.end_user)


def check_passed(adapter: Adapter, *, param: str | None = None) -> None:
    """Raises BadRequest for one that did not pass the gate; `param` is where the caller named it."""
    if adapter.job.state != State.SUCCEEDED:
        raise BadRequest(
            "This adapter did not pass its tests: it is kept to be looked at and answers nobody. Choose another "
            "version, or train again.",
            code="adapter_not_passed",
            param=param,
        )

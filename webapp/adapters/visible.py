"""The adapters that exist for a caller: the one place that says so, for the API, the gateway and the dashboard.

An adapter says what it was trained on, so it is for whoever may read that (webapp/datasets/readers.py).
"""

from django.db.models import Q, QuerySet

from webapp.adapters.models import Adapter
from webapp.datasets.readers import readable_by
from webapp.tenants.scope import Scope


def adapters_usable(scope: Scope) -> QuerySet[Adapter]:
    """What the caller may list, name and talk to: a tenant-wide adapter is everybody's in the tenant."""
    rows = Adapter.objects.filter(
        readable_by(scope, "job__training_file__"), tenant=scope.tenant, deleted_at=None
    )
    if scope.end_user is not None:
        rows = rows.filter(Q(end_user=scope.end_user) | Q(end_user=None))
    return rows.select_related("tenant", "base", "job", "end_user")


def adapters_owned(scope: Scope) -> QuerySet[Adapter]:
    """What the caller may also activate and delete: a tenant-wide adapter only if they act for the tenant."""
    rows = adapters_usable(scope)
    return rows if scope.end_user is None else rows.filter(end_user=scope.end_user)

"""Who may see what is in a file, and so what was made of it: one rule, for a row at hand and for a query.

What a person uploaded for themselves is for that person, and for keys that act for that person's end user; the
tenant's own uploads are for the tenant. Of everything else a caller sees counts and states alone.
"""

from django.db.models import Q

from webapp.config.faults import NotAllowed
from webapp.datasets.models import File
from webapp.tenants.scope import Scope


def may_read_file(*, scope: Scope, file: File) -> bool:
    """Whether the caller may see what is in a file of which they see that it is there."""
    if file.uploaded_by_id is None:
        return True
    if scope.user is not None:
        return scope.user.id == file.uploaded_by_id
    return scope.end_user is not None and scope.end_user.id == file.end_user_id


def check_readable(*, scope: Scope, file: File, to: str, param: str | None = None) -> None:
    """Raise NotAllowed unless the caller may read the file; `to` ends the sentence "only they can …"."""
    if not may_read_file(scope=scope, file=file):
        raise NotAllowed(
            f"A person uploaded this file for their own model, so only they can {to}.",
            code="content_private",
            param=param,
        )


def readable_by(scope: Scope, file: str = "") -> Q:
    """`may_read_file` as a condition on rows; `file` is the way from the row to its file ("training_file__")."""
    companys = Q(**{f"{file}uploaded_by": None})
    if scope.user is not None:
        return companys | Q(**{f"{file}uploaded_by": scope.user})
    if scope.end_user is not None:
        return companys | Q(**{f"{file}end_user": scope.end_user})
    return companys

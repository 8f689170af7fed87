"""Adapter rows without training: what the gateway and the dashboard choose between."""

import uuid
from typing import Any

from tests.webapp.company import Company, base_model
from webapp.adapters.models import Adapter, BaseModel
from webapp.jobs.models import Job, State
from webapp.tenants.models import EndUser


def adapter_row(
    company: Company,
    *,
    end_user: EndUser | None,
    base: BaseModel | None = None,
    active: bool = False,
    **job: Any,
) -> Adapter:
    """A finished adapter of `end_user` (None: tenant-wide), the active one if asked."""
    base = base or base_model()
    made_by = company.job(end_user=end_user, **job)
    Job.objects.filter(id=made_by.id).update(state=State.SUCCEEDED)
    digest = uuid.uuid4().hex * 2
    adapter = Adapter.objects.create(
        tenant=company.tenant,
        end_user=end_user,
        base=base,
        job=made_by,
        name=f"ap-{digest}",
        digest=digest,
        public_name=f"ft:{base.name}:{end_user.external_id if end_user else 'all'}:{digest[:8]}",
        method="direft",
        position="prefill",
        rank=8,
        size=1,
        version=Adapter.objects.filter(tenant=company.tenant, end_user=end_user).count() + 1,
        manifest={},
    )
    if active and end_user is not None:
        EndUser.objects.filter(id=end_user.id).update(active_adapter=adapter)
    return adapter


def another_base() -> BaseModel:
    base, _ = BaseModel.objects.get_or_create(
        name="other-base",
        defaults={
            "digest": "c" * 64,
            "source": "tests",
            "architecture": "LlamaForCausalLM",
            "context_length": 2048,
            "memory_bytes": 10**9,
            "license": "apache-2.0",
        },
    )
    return base

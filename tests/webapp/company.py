"""A tenant with an owner, a teammate, keys, files and a base model to train."""

import io
import json
import uuid
from dataclasses import dataclass
from typing import Any

from webapp.adapters.models import BaseModel
from webapp.datasets.files import file_create
from webapp.datasets.models import File
from webapp.jobs.create import job_create
from webapp.jobs.models import Job
from webapp.tenants.accounts import end_user_ensure, member_add, tenant_create, user_create
from webapp.tenants.keys import api_key_create
from webapp.tenants.models import EndUser, Membership, Role, Tenant

BASE_DIGEST = "b" * 64
PASSWORD = "a long enough phrase"


@dataclass
class Company:
    """`key` is the tenant's, `maren_key` acts for the end user `maren` alone."""

    tenant: Tenant
    owner: Membership
    teammate: Membership
    maren: EndUser
    key: str
    maren_key: str

    def file(self, rows: list[dict[str, Any]] | None = None, **fields: Any) -> File:
        return file_create(
            tenant=self.tenant,
            filename="chats.jsonl",
            stream=jsonl(talks() if rows is None else rows),
            **fields,
        )

    def job(self, **fields: Any) -> Job:
        file = fields.pop("training_file", None) or self.file()
        return job_create(tenant=self.tenant, base=base_model(), training_file=file, **fields)


def company_create(name: str) -> Company:
    tenant = tenant_create(name=name)
    people = [
        member_add(
            tenant=tenant,
            user=user_create(email=f"{uuid.uuid4().hex[:8]}@example.com", password=PASSWORD),
            role=role,
        )
        for role in (Role.OWNER, Role.MEMBER)
    ]
    maren = end_user_ensure(tenant=tenant, external_id="maren")
    _, key = api_key_create(tenant=tenant, name="server")
    _, maren_key = api_key_create(tenant=tenant, name="maren", end_user=maren)
    return Company(tenant, people[0], people[1], maren, key, maren_key)


def base_model() -> BaseModel:
    base, _ = BaseModel.objects.get_or_create(
        name="tiny",
        defaults={
            "digest": BASE_DIGEST,
            "source": "tests",
            "architecture": "LlamaForCausalLM",
            "context_length": 2048,
            "layers": 4,
            "memory_bytes": 10**9,
            "license": "apache-2.0",
            "is_default": True,
        },
    )
    return base


def talks(count: int = 12) -> list[dict[str, Any]]:
    return [
        {
            "messages": [
                {"role": "user", "content": f"Question {number}?"},
                {"role": "assistant", "content": f"Answer {number}."},
            ]
        }
        for number in range(count)
    ]


def pair(number: int = 0, **changes: Any) -> dict[str, Any]:
    """A preference pair as OpenAI has it."""
    return {
        "input": {"messages": [{"role": "user", "content": f"Question {number}?"}]},
        "preferred_output": [{"role": "assistant", "content": f"Gladly: {number}."}],
        "non_preferred_output": [{"role": "assistant", "content": f"No, not {number}."}],
        **changes,
    }


def jsonl(rows: list[dict[str, Any]]) -> io.BytesIO:
    return io.BytesIO("".join(json.dumps(row) + "\n" for row in rows).encode())

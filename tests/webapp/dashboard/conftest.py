"""Browsers of the company's people, and things of theirs."""

from dataclasses import dataclass

import pytest
from django.test import Client

from tests.webapp.adapter_rows import adapter_row
from tests.webapp.company import Company
from webapp.adapters.models import Adapter
from webapp.datasets.models import File
from webapp.jobs.models import Job
from webapp.tenants.models import Membership
from webapp.usage.records import usage_record

SECRET_NAME = "dear-diary.jsonl"


def browser(membership: Membership) -> Client:
    client = Client(headers={"host": "localhost"})
    client.force_login(membership.user)
    return client


@dataclass
class Things:
    """What one person made: a file, a training that waits, two finished versions and a chat with the second one."""

    file: File
    job: Job
    first: Adapter
    second: Adapter


def things_of(company: Company, membership: Membership) -> Things:
    made = {"end_user": membership.end_user}
    file = company.file(uploaded_by=membership.user, **made)
    File.objects.filter(id=file.id).update(filename=SECRET_NAME)
    job = company.job(training_file=file, **made)
    first = adapter_row(company, training_file=file, **made)
    second = adapter_row(company, training_file=file, active=True, **made)
    usage_record(
        tenant=company.tenant.id,
        kind="chat",
        request_id=second.id.hex,
        base="tiny",
        status=200,
        seconds=1.0,
        output_tokens=421,
        end_user=membership.end_user_id,
        adapter=second.id,
    )
    return Things(file, job, first, second)


@pytest.fixture
def owner(company: Company) -> Client:
    return browser(company.owner)


@pytest.fixture
def teammate(company: Company) -> Client:
    return browser(company.teammate)


@pytest.fixture
def outsider(other_company: Company) -> Client:
    return browser(other_company.owner)

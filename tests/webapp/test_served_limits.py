"""What the engine would refuse to serve is refused before it is trained, and nothing promises more than it serves."""

import pytest
from django.test import Client

from tests.webapp.company import Company, base_model
from webapp.adapters.models import BaseModel
from webapp.config.faults import BadRequest
from webapp.config.settings import settings
from webapp.jobs.create import Wishes
from webapp.jobs.models import Job

pytestmark = pytest.mark.django_db


def test_a_rank_that_the_engine_does_not_serve(company: Company) -> None:
    assert company.job(wishes=Wishes(rank=32)).recipe["rank"] == 32
    with pytest.raises(BadRequest, match="up to rank 32") as refused:
        company.job(wishes=Wishes(rank=33))
    assert (refused.value.code, refused.value.param) == ("adapter_rank_too_high", "adapter.rank")
    assert Job.objects.count() == 1


def test_the_default_rank_is_one_that_is_served(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    small = settings().model_copy(update={"max_rank": 1})
    monkeypatch.setattr("webapp.jobs.create.settings", lambda: small)
    assert company.job().recipe["rank"] == 1


@pytest.mark.parametrize(("of_the_model", "said"), [(8192, 2048), (512, 512)])
def test_the_context_length_is_the_one_that_is_served(
    company: Company, client: Client, of_the_model: int, said: int
) -> None:
    BaseModel.objects.filter(id=base_model().id).update(context_length=of_the_model)
    answer = client.get("/v1/models/tiny", headers={"authorization": f"Bearer {company.key}"})
    assert answer.json()["attune"]["context_length"] == said

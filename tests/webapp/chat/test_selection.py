"""Who answers: every rule of the gateway, as a table and one by one."""

import pytest

from adapters_store.names import parse_name
from tests.webapp.adapter_rows import adapter_row, another_base
from tests.webapp.company import Company, base_model
from webapp.adapters.adapters import adapter_activate, adapter_deactivate, adapter_delete
from webapp.adapters.models import Adapter
from webapp.chat.selection import Answerer, answerer_select
from webapp.config.faults import UserFault
from webapp.jobs.models import Job, State
from webapp.tenants.accounts import end_user_ensure
from webapp.tenants.models import EndUser
from webapp.tenants.scope import Scope

pytestmark = pytest.mark.django_db


def select(
    company: Company, model: str, user: str | None = None, *, key_user: EndUser | None = None
) -> Answerer:
    return answerer_select(scope=Scope(tenant=company.tenant, end_user=key_user), model=model, user=user)


def refusal(
    company: Company, model: str, user: str | None = None, *, key_user: EndUser | None = None
) -> tuple[int, str]:
    with pytest.raises(UserFault) as fault:
        select(company, model, user, key_user=key_user)
    assert fault.value.message
    return fault.value.status, fault.value.code


@pytest.fixture
def own(company: Company) -> Adapter:
    return adapter_row(company, end_user=company.maren, active=True)


@pytest.fixture
def juno(company: Company) -> EndUser:
    return end_user_ensure(tenant=company.tenant, external_id="juno")


def test_user_selects_the_active_adapter(company: Company, own: Adapter) -> None:
    chosen = select(company, "tiny", "maren")
    assert (chosen.adapter, chosen.public_name, chosen.end_user) == (
        own.id,
        own.public_name,
        company.maren.id,
    )
    assert chosen.adapter_header == own.public_name
    name = parse_name(chosen.serving_name)
    assert (name.tenant, name.name) == (company.tenant.storage_id, own.name)


def test_without_user_the_base_model_answers(company: Company, own: Adapter) -> None:
    chosen = select(company, "tiny")
    assert (chosen.adapter, chosen.serving_name, chosen.public_name) == (None, "tiny", "tiny")
    assert (chosen.end_user, chosen.adapter_header) == (None, "base")


def test_a_user_without_adapter_gets_the_base_model(company: Company, own: Adapter, juno: EndUser) -> None:
    chosen = select(company, "tiny", "juno")
    assert (chosen.adapter, chosen.serving_name, chosen.end_user) == (None, "tiny", juno.id)


def test_a_user_never_seen_gets_the_base_model_and_is_counted(company: Company) -> None:
    base_model()
    chosen = select(company, "tiny", "brand-new")
    assert chosen.adapter is None
    assert EndUser.objects.get(id=chosen.end_user).external_id == "brand-new"


def test_a_named_adapter_wins_over_the_active_one(company: Company, own: Adapter) -> None:
    newer = adapter_row(company, end_user=company.maren)
    assert select(company, newer.public_name, "maren").adapter == newer.id
    assert select(company, "tiny", "maren").adapter == own.id


def test_a_named_adapter_needs_no_user(company: Company, own: Adapter) -> None:
    chosen = select(company, own.public_name)
    assert (chosen.adapter, chosen.end_user) == (own.id, company.maren.id)


def test_a_named_adapter_of_another_end_user(company: Company, own: Adapter, juno: EndUser) -> None:
    assert refusal(company, own.public_name, "juno") == (400, "wrong_user")
    assert refusal(company, own.public_name, "never-seen") == (400, "wrong_user")
    assert not EndUser.objects.filter(external_id="never-seen").exists(), "a refused request leaves no trace"


def test_a_tenant_wide_adapter_answers_for_everyone(company: Company, juno: EndUser) -> None:
    wide = adapter_row(company, end_user=None)
    assert select(company, wide.public_name).adapter == wide.id
    chosen = select(company, wide.public_name, "juno")
    assert (chosen.adapter, chosen.end_user) == (wide.id, juno.id)


def test_an_adapter_that_did_not_pass_answers_nobody(
    company: Company, other_company: Company, own: Adapter, juno: EndUser
) -> None:
    tried = [adapter_row(company, end_user=None), adapter_row(company, end_user=company.maren)]
    Job.objects.filter(adapter__in=tried).update(state=State.FAILED)
    for adapter in tried:
        assert refusal(company, adapter.public_name) == (400, "adapter_not_passed")
        assert refusal(company, adapter.public_name, key_user=company.maren) == (400, "adapter_not_passed")
        assert refusal(other_company, adapter.public_name) == (404, "model_not_found")
    assert refusal(company, tried[1].public_name, key_user=juno) == (404, "model_not_found")
    assert select(company, "tiny", "maren").adapter == own.id


def test_another_tenants_adapter_is_not_there(company: Company, other_company: Company) -> None:
    theirs = adapter_row(other_company, end_user=other_company.maren, active=True)
    assert refusal(company, theirs.public_name) == (404, "model_not_found")
    assert refusal(company, theirs.public_name, "maren") == (404, "model_not_found")
    assert select(company, "tiny", "maren").adapter is None, "the same id elsewhere is someone else"


@pytest.mark.parametrize(
    "model", ["gpt-4o", "ft:tiny:maren:00000000", "{serving}", "{name}", "tiny/../tiny", "TINY"]
)
def test_unknown_models_and_the_engines_own_names(company: Company, own: Adapter, model: str) -> None:
    serving = select(company, own.public_name).serving_name
    assert refusal(company, model.format(serving=serving, name=own.name), "maren") == (404, "model_not_found")


def test_an_adapter_of_another_base(company: Company) -> None:
    adapter_row(company, end_user=company.maren, base=another_base(), active=True)
    base_model()
    assert refusal(company, "tiny", "maren") == (400, "wrong_base")
    assert select(company, "other-base", "maren").adapter is not None


def test_activation_deactivation_and_deletion_count_at_once(company: Company, own: Adapter) -> None:
    newer = adapter_row(company, end_user=company.maren)
    adapter_activate(adapter=newer)
    assert select(company, "tiny", "maren").adapter == newer.id
    adapter_deactivate(adapter=newer)
    assert select(company, "tiny", "maren").adapter is None
    adapter_activate(adapter=own)
    adapter_delete(adapter=own)
    assert select(company, "tiny", "maren").adapter is None
    assert refusal(company, own.public_name) == (404, "model_not_found")


class TestUserKey:
    """A key with an end user acts for that one alone, whether the request names them or not."""

    def test_acts_for_its_own(self, company: Company, own: Adapter) -> None:
        assert select(company, "tiny", key_user=company.maren).adapter == own.id
        assert select(company, "tiny", "maren", key_user=company.maren).adapter == own.id
        assert select(company, own.public_name, key_user=company.maren).adapter == own.id

    def test_for_nobody_else(self, company: Company, own: Adapter, juno: EndUser) -> None:
        assert refusal(company, "tiny", "juno", key_user=company.maren) == (403, "wrong_user")

    def test_may_name_what_is_the_tenants(self, company: Company, own: Adapter) -> None:
        wide = adapter_row(company, end_user=None)
        chosen = select(company, wide.public_name, key_user=company.maren)
        assert (chosen.adapter, chosen.end_user) == (wide.id, company.maren.id)
        assert select(company, "tiny", key_user=company.maren).adapter == own.id

    def test_others_adapters_are_not_there(self, company: Company, own: Adapter, juno: EndUser) -> None:
        assert refusal(company, own.public_name, key_user=juno) == (404, "model_not_found")
        assert select(company, "tiny", key_user=juno).adapter is None

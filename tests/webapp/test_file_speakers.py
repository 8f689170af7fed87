"""The form fields `me` and `voice`, through OpenAI's client."""

from collections.abc import Callable

import openai
import pytest

from tests.webapp.company import Company
from webapp.datasets.files import file_create
from webapp.datasets.models import File

pytestmark = pytest.mark.django_db(transaction=True)
MakeClient = Callable[[str], openai.OpenAI]

CHAT = "13/05/2024, 10:04 - Ann: Hi\n13/05/2024, 10:05 - J\u00fcrgen: Hello\n".encode()
TALK = (
    b'[{"chat_messages": [{"sender": "human", "text": "Hi"}, {"sender": "assistant", "text": "Hello"},'
    b' {"sender": "human", "text": "Why?"}]}]'
)


def test_a_chat_asks_who_me_is(openai_client: MakeClient, company: Company) -> None:
    client = openai_client(company.key)
    asked = client.files.create(file=("chat.txt", CHAT), purpose="fine-tune")
    report = asked.to_dict()["report"]
    assert (asked.status, report["code"]) == ("error", "speaker_needed")
    assert {"name": "Jürgen", "messages": 1} in report["speakers"]
    told = client.files.create(file=("chat.txt", CHAT), purpose="fine-tune", extra_body={"me": "Jürgen"})
    assert (told.status, told.to_dict()["format"], told.to_dict()["report"]["me"]) == (
        "processed",
        "whatsapp",
        "Jürgen",
    )


def test_an_assistants_export_asks_whose_voice(openai_client: MakeClient, company: Company) -> None:
    client = openai_client(company.key)
    asked = client.files.create(file=("talk.json", TALK), purpose="fine-tune")
    report = asked.to_dict()["report"]
    assert (asked.status, report["code"]) == ("error", "voice_needed")
    assert report["voices"] == {
        "me": [{"before": "Hello", "answer": "Why?"}],
        "assistant": [{"before": "Hi", "answer": "Hello"}],
    }
    for voice in ("me", "assistant"):
        told = client.files.create(file=("talk.json", TALK), purpose="fine-tune", extra_body={"voice": voice})
        assert (told.status, told.to_dict()["report"]["examples"]) == ("processed", 1)
        assert told.to_dict()["report"]["voices"] == report["voices"]
    [_, _, listed] = client.files.list()
    assert "voices" not in listed.to_dict()["report"]


def test_examples_are_for_those_who_may_read_the_file(openai_client: MakeClient, company: Company) -> None:
    person = company.teammate
    file = file_create(
        tenant=company.tenant,
        filename="talk.json",
        stream=[TALK],
        uploaded_by=person.user,
        end_user=person.end_user,
    )
    seen = openai_client(company.key).files.retrieve(file.public_id).to_dict()
    assert (seen["report"]["rows"], "voices" in seen["report"], "Hello" in str(seen)) == (0, False, False)


@pytest.mark.parametrize("fields", [{"me": ""}, {"me": "a\x00"}, {"voice": "mine"}])
def test_fields_that_say_nothing(openai_client: MakeClient, company: Company, fields: dict[str, str]) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        openai_client(company.key).files.create(
            file=("chat.txt", CHAT), purpose="fine-tune", extra_body=fields
        )
    assert refused.value.param == next(iter(fields))


def test_names_that_no_database_holds(company: Company) -> None:
    """A speaker may be called anything: the report is stored all the same."""
    odd = b'{"messages": [{"from": "\\u0000\\ud83d", "text": "a", "date_unixtime": "1"}]}'
    assert company.file().status == "processed"
    stored = file_create(tenant=company.tenant, filename="a", stream=[odd])
    assert File.objects.get(id=stored.id).report["speakers"] == [{"name": "\ufffd\ufffd", "messages": 1}]

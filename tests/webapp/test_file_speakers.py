"""The form fields `me` and `voice`, through OpenAI's client."""

from collections.abc import Callable

import openai
import pytest

from tests.webapp.company import Company
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


@pytest.mark.parametrize(("voice", "examples"), [({}, 1), ({"voice": "assistant"}, 1), ({"voice": "me"}, 1)])
def test_an_assistants_export_asks_whose_voice(
    openai_client: MakeClient, company: Company, voice: dict[str, str], examples: int
) -> None:
    client = openai_client(company.key)
    file = client.files.create(file=("talk.json", TALK), purpose="fine-tune", extra_body=voice)
    report = file.to_dict()["report"]
    assert report["examples"] == examples
    assert f"voice={voice.get('voice', 'assistant')}:" in report["facts"][0]


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
    file = company.file()
    assert file.status == "processed"
    from webapp.datasets.files import file_create

    stored = file_create(tenant=company.tenant, filename="a", stream=[odd])
    assert File.objects.get(id=stored.id).report["speakers"] == [{"name": "\ufffd\ufffd", "messages": 1}]

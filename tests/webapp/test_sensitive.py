"""Secrets and personal identifiers: what is taken for one, what is not, and what becomes of them in an upload."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from tests.webapp.company import Company
from tests.webapp.test_transitions import running
from tests.webapp.uploads import check, rows, zipped
from webapp.datasets import credentials
from webapp.datasets.masking import Sensitive
from webapp.datasets.models import File
from webapp.datasets.sensitive import sensitive

MakeClient = Callable[[str], openai.OpenAI]
#: In pieces, so that nobody who searches this repository for keys takes them for real ones.
FAKE = "4f9Kd83jQ0aZx7Lm2Pq5Rt6Vw1Yb8Nc3He"
PEM = "-----BEGIN RSA PRIVATE " + f"KEY-----\n{FAKE}+/{FAKE}==\n-----END RSA PRIVATE KEY-----"
JWT = f"ey{'J'}hbGciOiJIUzI1NiJ9.ey{'J'}zdWIiOiIxMjM0NTY3.{FAKE}"


def found(text: str) -> list[tuple[str, str]]:
    return [(span.kind, text[span.start : span.end]) for span in sensitive(text)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("private_key", PEM),
        ("private_key", PEM.replace("RSA ", "OPENSSH ")),
        ("private_key", PEM[:60]),
        ("api_key", "sk" + f"-proj-{FAKE}"),
        ("api_key", "sk" + f"-ant-api03-{FAKE}-{FAKE}"),
        ("api_key", "AKIA" + "IOSFODNN7EXAMPLE"),
        ("api_key", "AIza" + FAKE + "x"),
        ("api_key", "gh" + f"p_{FAKE}ab"),
        ("api_key", "github" + f"_pat_{FAKE}"),
        ("api_key", "glpat" + f"-{FAKE}"),
        ("api_key", "xox" + "b-123456789012-abcdefABCDEF"),
        ("api_key", "sk" + f"_live_{FAKE}"),
        ("api_key", "hf" + f"_{FAKE}"),
        ("api_key", "attune" + f"_abcd1234_{FAKE}abcd"),
        ("api_key", JWT),
        ("card_number", "4111 1111 1111 1111"),
        ("card_number", "5555555555554444"),
        ("card_number", "3782-822463-10005"),
        ("card_number", "30569309025904"),
        ("iban", "DE89 3704 0044 0532 0130 00"),
        ("iban", "DE89370400440532013000"),
        ("iban", "GB82 WEST 1234 5698 7654 32"),
        ("iban", "FR14 2004 1010 0505 0001 3M02 606"),
        ("iban", "ES91 2100 0418 4502 0005 1332"),
        ("email", "ann.o'hara+list@mail.example.co.uk"),
        ("email", "jürgen@müller.de"),
        ("phone", "+49 171 1234567"),
        ("phone", "+49 (0)30 901820"),
        ("phone", "0044 20 7946 0958"),
        ("phone", "+14155550132"),
        ("phone", "0171/1234567"),
        ("phone", "030 901820-17"),
        ("phone", "(030) 901820"),
        ("phone", "06.12.34.56.78"),
        ("phone", "06 12 34 56 78"),
        ("phone", "(415) 555-0132"),
        ("phone", "415-555-0132"),
        ("phone", "+٤٩ ١٧١ ١٢٣٤٥٦٧"),
    ],
)
@pytest.mark.parametrize("around", ["{}", "Write to {}, please.", "is it ({})?", "¿{}? 🙂"])
def test_what_is_found(kind: str, value: str, around: str) -> None:
    assert found(around.format(value)) == [(kind, value)]


@pytest.mark.parametrize(
    ("text", "password"),
    [
        ("The WLAN password: hunter2hunter2.", "hunter2hunter2"),
        ("Passwort ist Geheim!99", "Geheim!99"),
        ("contraseña (nueva): 'abc123def'", "abc123def"),
        ('{"api_key": "0a1b2c3d4e5f"}', "0a1b2c3d4e5f"),
        ("пароль: кот2024", "кот2024"),
        ("postgres://me:s3cret@db.internal/x", "s3cret"),
    ],
)
def test_passwords(text: str, password: str) -> None:
    assert found(text) == [("password", password)]


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1112",
        "DE89 3704 0044 0532 0130 01",
        "XX89 3704 0044 0532 0130 00",
        "order 9876543210, part 1234567890123456789012",
        "On 01.05.2024 10:30 or 2024-05-01 10:30, or 13/05/2024, 10:04",
        "Boston, MA 02110-1301",
        "pi is 3.14159265358979, e is 2.718281828459045",
        "10.1000/182 and 192.168.100.200 and 1,234,567,890",
        "Password: required. The password is forgotten. Password: https://example.com/reset2",
        "class sk-toggleable__label-arrow-default and task-force-of-the-north-sea",
        "me @ home, @ann, a@b",
        "-----BEGIN PUBLIC KEY-----",
        "1 2 3 4 5 6 7 8 9 10 11 12",
        "[email 1] [phone 2] [card number 3]",
    ],
)
def test_what_is_none(text: str) -> None:
    assert found(text) == []


def test_every_word_for_a_password_is_looked_for() -> None:
    for word in credentials._WORDS:
        assert found(f"{word}: abc123") == [("password", "abc123")], word


def test_two_that_stand_together() -> None:
    text = "Ann <ann@example.com>, IBAN ES91 2100 0418 4502 0005 1332 BIC CAIXESBB, +49 171 1234567"
    assert [kind for kind, _ in found(text)] == ["email", "iban", "phone"]


def talk(question: str, answer: str) -> str:
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return json.dumps({"messages": turns}) + "\n"


SECRETS = (
    talk("Who?", "Nobody.")
    + talk("Ann's address?", "ann@example.com, and Ben's is Ben@example.com. Again: ANN@example.com")
    + talk("Mine is ann@example.com or +49 171 1234567", "Or 0049 171 1234567, and +49-171-1234567.")
)


def test_the_report_says_kind_count_and_line_and_no_content() -> None:
    report = check(SECRETS).report.as_json()
    assert report["sensitive"] == [
        {
            "kind": "email",
            "count": 4,
            "trained": 3,
            "rows": 2,
            "listed": [{"id": "2", "line": 2}, {"id": "3", "line": 3}],
        },
        {"kind": "phone", "count": 3, "trained": 2, "rows": 1, "listed": [{"id": "3", "line": 3}]},
    ]
    assert any("4 e-mail addresses, 3 telephone numbers" in note for note in report["notes"])
    for secret in ("ann@", "Ben@", "1234567"):
        assert secret not in json.dumps(report)


def test_masked_by_placeholders_that_stay_the_same() -> None:
    result = check(SECRETS, mask=True)
    answers = [row["messages"] for row in rows(result)]
    assert [turn["content"] for turn in answers[1]] == [
        "Ann's address?",
        "[email 1], and Ben's is [email 2]. Again: [email 1]",
    ]
    assert [turn["content"] for turn in answers[2]] == [
        "Mine is [email 1] or [phone 1]",
        "Or [phone 1], and [phone 1].",
    ]
    assert result.report.as_json()["masked"]
    assert any("replaced by a placeholder" in note for note in result.report.as_json()["notes"])
    assert [row["messages"] for row in rows(check(SECRETS))] != answers


def test_more_values_than_are_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("webapp.datasets.masking.MAX_NUMBERED", 1)
    result = check(SECRETS, mask=True)
    assert rows(result)[1]["messages"][1]["content"] == "[email 1], and Ben's is [email]. Again: [email 1]"


@pytest.mark.parametrize(
    ("data", "fields", "where"),
    [
        (zipped({"a.jsonl": talk("q", "a") + talk("q", "ann@example.com")}), {}, {"id": "1:2", "line": 2}),
        (
            "13/05/2024, 10:04 - +49 171 1234567: Hi, ann@example.com\n13/05/2024, 10:05 - Ben: Hello\n",
            {"me": "Ben"},
            {"id": "1.1", "line": 1},
        ),
        (
            '[\n{"chat_messages": [{"sender": "human", "text": "ann@example.com?"}, '
            '{"sender": "assistant", "text": "No"}]}]',
            {},
            {"id": "1", "line": 2},
        ),
        (
            "# Ann\n\nHer address is ann@example.com. " + "She lives far away. " * 20,
            {},
            {"id": "2.1", "line": 3},
        ),
    ],
    ids=["an archive", "a chat", "an assistant's export", "notes"],
)
def test_in_every_kind_of_upload(data: Any, fields: dict[str, str], where: dict[str, Any]) -> None:
    result = check(data, **fields, mask=True)
    [email] = result.report.as_json()["sensitive"]
    assert (email["kind"], email["listed"]) == ("email", [where])
    assert "ann@example.com" not in json.dumps(rows(result))


def test_only_so_many_rows_are_listed() -> None:
    report = check("".join(talk(f"q {n}", f"ann{n}@example.com") for n in range(150))).report.as_json()
    [email] = report["sensitive"]
    assert (email["rows"], len(email["listed"])) == (150, 100)


def test_nothing_found_is_nothing_said() -> None:
    assert Sensitive().as_json() == []
    report = check(talk("q", "a")).report.as_json()
    assert (report["sensitive"], report["masked"]) == ([], False)
    assert not any("mask" in note for note in report["notes"])


@pytest.mark.django_db(transaction=True)
class TestService:
    def test_what_is_trained_holds_placeholders(
        self, company: Company, web: httpx.Client, openai_client: MakeClient
    ) -> None:
        client = openai_client(company.key)
        file = client.files.create(
            file=("chats.jsonl", SECRETS.encode()), purpose="fine-tune", extra_body={"mask": True}
        )
        report = file.to_dict()["report"]
        assert (report["masked"], [each["kind"] for each in report["sensitive"]]) == (
            True,
            ["email", "phone"],
        )
        assert client.files.content(file.id).read() == SECRETS.encode(), "the upload stays as it came"
        [brief] = client.files.list()
        assert "sensitive" not in brief.to_dict()["report"]
        _, trainer = running(company, web, training_file=File.objects.get())
        text = httpx.get(trainer.spec.conversations.url, verify=False).text
        assert "[email 1]" in text
        assert "example.com" not in text

    def test_a_wish_that_is_none(self, company: Company, openai_client: MakeClient) -> None:
        with pytest.raises(openai.BadRequestError) as refused:
            openai_client(company.key).files.create(
                file=("a.jsonl", b"{}"), purpose="fine-tune", extra_body={"mask": "perhaps"}
            )
        assert (refused.value.code, refused.value.param) == ("invalid_value", "mask")

    def test_the_dashboard_shows_it_and_masks_afterwards(self, company: Company) -> None:
        person = Client(headers={"host": "localhost"})
        person.force_login(company.owner.user)
        chat = "".join(
            f"{day:02}/05/2024, 10:0{minute} - {who}: {text}\n"
            for day in (1, 2)
            for minute, (who, text) in enumerate([("Ann", "Hi"), ("Ben", "Write to ben@example.com")])
        )
        person.post("/files", {"file": SimpleUploadedFile("chat.txt", chat.encode())})
        person.post(f"/files/{File.objects.get().id}/read-as", {"me": "Ben"})
        file = File.objects.get(deleted_at=None)
        page = person.get(f"/files/{file.id}").content.decode()
        assert "Private details in it" in page
        assert "E-mail addresses" in page
        person.post(f"/files/{file.id}/read-as", {"me": "Ben", "mask": "on"})
        file = File.objects.get(deleted_at=None)
        assert (file.report["masked"], file.report["me"]) == (True, "Ben")
        page = person.get(f"/files/{file.id}").content.decode()
        assert "Replaced by placeholders" in page
        assert "Replace them by placeholders" not in page

    def test_the_dashboard_masks_at_the_upload(self, company: Company) -> None:
        person = Client(headers={"host": "localhost"})
        person.force_login(company.owner.user)
        for form in ({}, {"mask": "on"}):
            person.post("/files", {"file": SimpleUploadedFile("a.jsonl", SECRETS.encode()), **form})
        masked = File.objects.order_by("created_at").values_list("report__masked", flat=True)
        assert list(masked) == [False, True]

    def test_others_are_told_counts_of_rows_alone(self, company: Company, openai_client: MakeClient) -> None:
        file = company.file(
            [json.loads(line) for line in SECRETS.splitlines()],
            uploaded_by=company.owner.user,
            end_user=company.owner.end_user,
        )
        told = openai_client(company.key).files.retrieve(file.public_id).to_dict()["report"]
        assert set(told) == {"rows", "good", "bad", "examples"}

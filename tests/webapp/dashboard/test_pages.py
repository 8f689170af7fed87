"""What a person does in the dashboard, page by page."""

import re
from html.parser import HTMLParser

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.http import HttpResponse
from django.test import Client

from tests.webapp.adapter_rows import adapter_row
from tests.webapp.company import PASSWORD, Company, base_model, jsonl, talks
from tests.webapp.dashboard.conftest import things_of
from webapp.datasets.models import File
from webapp.jobs.events import event_add
from webapp.jobs.models import Job, State
from webapp.jobs.prepare import job_prepare
from webapp.tenants.keys import api_key_resolve
from webapp.tenants.models import ApiKey, EndUser, Membership

pytestmark = pytest.mark.django_db


def text_of(client: Client, path: str, **headers: str) -> str:
    answer = client.get(path, headers=headers)
    assert answer.status_code == 200
    return " ".join(re.sub(r"<[^>]+>", " ", answer.content.decode()).split())


class TestSignUp:
    def test_a_new_company(self, client: Client) -> None:
        form = {"email": "New@Example.com", "tenant_name": "Fjord", "password": PASSWORD}
        answer = client.post("/signup", form, headers={"host": "localhost"})
        assert (answer.status_code, answer["location"]) == (302, "/")
        assert Membership.objects.get(user__email="new@example.com").tenant.name == "Fjord"
        assert "three steps" in text_of(client, "/", host="localhost")

    @pytest.mark.parametrize(
        ("field", "value", "told"),
        [
            ("email", "nonsense", "valid email"),
            ("password", "short", "too short"),
            ("tenant_name", "", "required"),
        ],
    )
    def test_what_is_wrong_is_said_at_its_field(
        self, client: Client, field: str, value: str, told: str
    ) -> None:
        form = {"email": "new@example.com", "tenant_name": "Fjord", "password": PASSWORD} | {field: value}
        answer = client.post("/signup", form, headers={"host": "localhost"})
        assert answer.status_code == 422
        assert told in answer.content.decode()
        assert not Membership.objects.exists()

    def test_closed_after_the_first_owner(self, client: Client, company: Company) -> None:
        form = {"email": "new@example.com", "tenant_name": "Fjord", "password": PASSWORD}
        assert "closed" in text_of(client, "/signup", host="localhost")
        client.post("/signup", form, headers={"host": "localhost"})
        assert not Membership.objects.filter(user__email="new@example.com").exists()


def test_log_in_and_out(client: Client, company: Company) -> None:
    host = {"host": "localhost"}
    wrong = client.post("/login", {"username": company.owner.user.email, "password": "wrong"}, headers=host)
    assert "Check both and try again" in wrong.content.decode()
    form = {"username": company.owner.user.email.upper(), "password": PASSWORD, "next": "/files"}
    assert client.post("/login", form, headers=host)["location"] == "/files"
    assert client.get("/logout", headers=host).status_code == 405
    client.post("/logout", headers=host)
    assert client.get("/", headers=host).status_code == 302


def test_login_never_leads_elsewhere(client: Client, company: Company) -> None:
    form = {"username": company.owner.user.email, "password": PASSWORD, "next": "https://evil.example/"}
    assert client.post("/login", form, headers={"host": "localhost"})["location"] == "/"


class TestUpload:
    def test_a_good_file(self, company: Company, teammate: Client) -> None:
        upload = SimpleUploadedFile("chats.jsonl", jsonl(talks(14)).read())
        answer = teammate.post("/files", {"file": upload}, follow=True)
        assert "All 14 rows are good." in answer.content.decode()
        file = File.objects.get()
        assert (file.end_user, file.uploaded_by) == (company.teammate.end_user, company.teammate.user)

    def test_bad_rows_are_named_with_what_to_do(self, teammate: Client) -> None:
        content = jsonl(talks(3)).read() + b'{"messages": [}\n{"messages": []}\n'
        answer = teammate.post("/files", {"file": SimpleUploadedFile("c.jsonl", content)}, follow=True)
        text = " ".join(re.sub(r"<[^>]+>", " ", answer.content.decode()).split())
        assert "3 of 5 rows are good." in text
        assert "Line 4" in text
        assert "Line 5" in text

    def test_a_file_of_something_else(self, teammate: Client) -> None:
        answer = teammate.post(
            "/files", {"file": SimpleUploadedFile("a.png", b"\x89PNG" + bytes(99))}, follow=True
        )
        assert "Nothing of this file can be used." in answer.content.decode()
        assert "Train on this file" not in answer.content.decode()

    def test_a_chat_export_asks_who_one_is(self, company: Company, teammate: Client) -> None:
        chat = "13/05/2024, 10:04 - Ann: Hi\n13/05/2024, 10:05 - J\u00fcrgen: Hello\n".encode()
        asked = teammate.post("/files", {"file": SimpleUploadedFile("chat.txt", chat)}, follow=True)
        assert "Which of them are you?" in asked.content.decode()
        first = File.objects.get()
        answer = teammate.post(f"/files/{first.id}/read-as", {"me": "Jürgen"}, follow=True)
        assert "You are Jürgen" in answer.content.decode()
        assert "Train on this file" in answer.content.decode()
        file = File.objects.get(deleted_at=None)
        assert (file.report["me"], file.filename, file.uploaded_by) == (
            "Jürgen",
            "chat.txt",
            company.teammate.user,
        )
        first.refresh_from_db()
        assert first.deleted_at is not None, "the file takes the place of the one that was asked about"

    def test_a_talk_with_an_assistant_asks_whose_voice(self, teammate: Client) -> None:
        talk = (
            b'[{"chat_messages": [{"sender": "human", "text": "Hi"}, {"sender": "assistant", "text": "Hello"},'
            b' {"sender": "human", "text": "Why?"}]}]'
        )
        asked = teammate.post("/files", {"file": SimpleUploadedFile("talk.json", talk)}, follow=True)
        page = asked.content.decode()
        assert "One question before it can be used." in page
        assert "Whose voice?" in page
        assert all(words in page for words in ("Hello", "Why?", "Learn to write like me"))
        assert "Train on this file" not in page
        answer = teammate.post(f"/files/{File.objects.get().id}/read-as", {"voice": "me"}, follow=True)
        assert "Chosen: learn to write like me" in answer.content.decode()
        assert "Train on this file" in answer.content.decode()
        assert "to be you, as you write" in File.objects.get(deleted_at=None).report["facts"][0]

    def test_only_its_person_says_who_they_are(self, company: Company, owner: Client) -> None:
        made = things_of(company, company.teammate)
        owner.post(f"/files/{made.file.id}/read-as", {"me": "x"})
        assert File.objects.get().deleted_at is None

    def test_no_file(self, teammate: Client) -> None:
        answer = teammate.post("/files")
        assert answer.status_code == 422
        assert "Choose a file first." in answer.content.decode()

    def test_a_filename_is_text(self, teammate: Client) -> None:
        name = "<script>alert(1)</script>.jsonl"
        teammate.post("/files", {"file": SimpleUploadedFile(name, jsonl(talks()).read())})
        assert "<script>alert" not in teammate.get("/files").content.decode()

    def test_a_file_in_use_stays(self, company: Company, teammate: Client) -> None:
        made = things_of(company, company.teammate)
        answer = teammate.post(f"/files/{made.file.id}/delete", follow=True)
        assert "is training on this file" in answer.content.decode()
        teammate.post(f"/training/{made.job.id}/cancel")
        teammate.post(f"/files/{made.file.id}/delete")
        made.file.refresh_from_db()
        assert made.file.deleted_at is not None


class TestTraining:
    def test_starts_with_sensible_choices(self, company: Company, teammate: Client) -> None:
        file = company.file(uploaded_by=company.teammate.user, end_user=company.teammate.end_user)
        base = base_model()
        page = teammate.get(f"/training/new?file={file.id}").content.decode()
        assert re.search(r'value="direft" checked', page)
        answer = teammate.post("/training/new", {"file": file.id, "method": "direft", "base": base.id})
        job = Job.objects.get()
        assert answer["location"] == f"/training/{job.id}"
        assert (job.end_user, job.base, job.training_file) == (company.teammate.end_user, base, file)
        assert (job.recipe["method"], job.recipe["position"]) == ("direft", "prefill")

    def test_the_choices_that_one_makes(self, company: Company, teammate: Client) -> None:
        file = company.file(uploaded_by=company.teammate.user, end_user=company.teammate.end_user)
        form = {
            "file": file.id,
            "method": "lora",
            "base": base_model().id,
            "n_epochs": 3,
            "position": "all",
            "suffix": "v2",
        }
        teammate.post("/training/new", form)
        job = Job.objects.get()
        assert (job.recipe["method"], job.recipe["position"], job.suffix) == ("lora", "all", "v2")
        assert job.hyperparameters["n_epochs"] == 3

    def test_only_on_files_of_ones_own(self, company: Company, owner: Client) -> None:
        theirs = company.file(uploaded_by=company.teammate.user, end_user=company.teammate.end_user)
        company.file(uploaded_by=company.owner.user, end_user=company.owner.end_user)
        answer = owner.post("/training/new", {"file": theirs.id, "method": "direft", "base": base_model().id})
        assert answer.status_code == 422
        assert not Job.objects.exists()

    def test_the_page_of_a_run(self, company: Company, teammate: Client) -> None:
        job = company.job(end_user=company.teammate.end_user)
        waiting = teammate.get(f"/training/{job.id}").content.decode()
        assert "starts by itself" in waiting
        assert '<svg class="chart"' not in waiting
        for step in range(1, 6):
            event_add(job=job, message=f"Step {step}", metrics={"step": step, "train_loss": 3 / step})
        event_add(job=job, message="Held out", metrics={"step": 5, "full_valid_loss": 1.25})
        Job.objects.filter(id=job.id).update(
            state=State.RUNNING, step=5, total_steps=20, started_at=job.created_at
        )
        live = teammate.get(f"/training/{job.id}", headers={"hx-request": "true"}).content.decode()
        assert "<html" not in live, "htmx gets the live part alone"
        assert 'hx-trigger="every 2s"' in live
        assert '<progress value="5" max="20"' in live
        assert "from 3.00 to 0.60 over 5 steps. On held-out rows 1.25 at best." in live
        assert "about" in live

    def test_pausing_and_going_on(self, company: Company, teammate: Client) -> None:
        job = company.job(end_user=company.teammate.end_user)
        early = teammate.post(f"/training/{job.id}/pause", follow=True).content.decode()
        assert "cannot be paused" in early, "its file is still being read"
        job_prepare(job=job.id)
        paused = teammate.post(f"/training/{job.id}/pause", follow=True).content.decode()
        assert Job.objects.get().state == State.PAUSED
        assert f'action="/training/{job.id}/resume"' in paused
        assert f'action="/training/{job.id}/pause"' not in paused
        again = teammate.post(f"/training/{job.id}/resume", follow=True).content.decode()
        assert Job.objects.get().state == State.QUEUED
        assert f'action="/training/{job.id}/pause"' in again

    def test_the_end_of_a_run_stops_the_asking(self, company: Company, teammate: Client) -> None:
        job = company.job(end_user=company.teammate.end_user)
        teammate.post(f"/training/{job.id}/cancel")
        page = teammate.get(f"/training/{job.id}").content.decode()
        assert "Cancelled" in page
        assert "hx-trigger" not in page
        assert "Cancel training" not in page
        again = teammate.post(f"/training/{job.id}/cancel", follow=True)
        assert again.status_code == 200

    def test_a_failure_says_why(self, company: Company, teammate: Client) -> None:
        job = company.job(end_user=company.teammate.end_user)
        Job.objects.filter(id=job.id).update(
            state=State.FAILED, error_code="x", error_message="Too long a row."
        )
        assert "The training failed. Too long a row." in text_of(teammate, f"/training/{job.id}")


def test_what_was_found_about_a_model(company: Company, teammate: Client) -> None:
    job = things_of(company, company.teammate).second.job
    comparison = {
        "conversations": 9,
        "tokens": 1200,
        "loss": 7.5,
        "adapter_loss": 2.5,
        "low": -5.5,
        "high": -4.5,
    }
    engine = {"prompts": 3, "tokens": 96, "effect": 3.2, "difference": 1e-4, "base_difference": 2e-4}
    Job.objects.filter(id=job.id).update(
        report={
            "against_base": comparison,
            "against_memory": comparison | {"low": -0.1, "high": 0.3, "quoted": 40, "prompt_tokens": 990},
            "gate": {
                "engine": engine | {"allowed": 1e-3},
                "warnings": [{"code": "memory_prompt_wins", "message": "A prompt does <better>."}],
                "activated": True,
            },
        }
    )
    page = teammate.get(f"/training/{job.id}").content.decode()
    assert '<p class="notice warn">A prompt does &lt;better&gt;.</p>' in page
    assert "1,200 tokens of 9 conversations" in page
    assert "The adapter is better: 95 % sure, by 4.50 to 5.50." in page
    assert "That is no clear difference: 95 % sure, between 0.10 better and 0.30 worse." in page
    assert "0.0001 apart over 96 tokens, where 0.001 is allowed" in page


class TestModels:
    def test_activate_and_undo(self, company: Company, teammate: Client) -> None:
        made = things_of(company, company.teammate)
        person = company.teammate.end_user
        answer = teammate.post(f"/models/{made.first.id}/activate", follow=True)
        person.refresh_from_db()
        assert person.active_adapter_id == made.first.id
        assert "Version 2 answered before." in answer.content.decode()
        teammate.post(f"/models/{made.second.id}/activate")
        person.refresh_from_db()
        assert person.active_adapter_id == made.second.id

    def test_back_to_the_base_model_and_undo(self, company: Company, teammate: Client) -> None:
        made = things_of(company, company.teammate)
        answer = teammate.post(f"/models/{made.second.id}/deactivate", follow=True)
        company.teammate.end_user.refresh_from_db()
        assert company.teammate.end_user.active_adapter_id is None
        assert "Version 2 answered before." in answer.content.decode()

    def test_what_did_not_pass_cannot_be_activated(self, company: Company, teammate: Client) -> None:
        things = things_of(company, company.teammate)
        Job.objects.filter(id=things.first.job_id).update(state=State.FAILED)
        page = teammate.get("/models").content.decode()
        assert '<span class="badge bad">Did not pass</span>' in page
        assert f"/models/{things.first.id}/activate" not in page
        assert f"/chat?model={things.first.id}" not in page
        assert f"/chat?model={things.second.id}" in page
        assert str(things.first.id) not in teammate.get(f"/chat?model={things.first.id}").content.decode()
        answer = teammate.post(f"/models/{things.first.id}/activate", follow=True)
        assert "did not pass its tests" in answer.content.decode()
        assert "Chat with it" not in teammate.get(f"/training/{things.first.job_id}").content.decode()
        to_chat = '<a class="button primary" href="/chat">'
        assert to_chat in teammate.get("/").content.decode()
        Job.objects.filter(id=things.second.job_id).update(state=State.FAILED)
        assert to_chat not in teammate.get("/").content.decode(), "there is nobody to talk to"

    def test_deleting_asks_first(self, company: Company, teammate: Client) -> None:
        made = things_of(company, company.teammate)
        page = text_of(teammate, f"/models/{made.second.id}/delete")
        assert "cannot be undone" in page
        assert "It is the active version" in page
        made.second.refresh_from_db()
        assert made.second.deleted_at is None
        teammate.post(f"/models/{made.second.id}/delete")
        made.second.refresh_from_db()
        assert made.second.deleted_at is not None
        assert made.second.public_name not in teammate.get("/models").content.decode()


def test_a_key_is_shown_once_and_works(company: Company, owner: Client) -> None:
    shown = owner.post("/keys", {"name": "Server", "reach": "company"}).content.decode()
    found = re.search(r"attune_\w{8}_\w{38}", shown)
    assert found
    key = api_key_resolve(found[0])
    assert (key.tenant, key.end_user) == (company.tenant, None)
    again = owner.get("/keys").content.decode()
    assert found[0] not in again
    assert key.prefix in again


class TestAnEndUsersKey:
    """Made by the company's managers, for whoever their product names in `user`."""

    def make(self, client: Client, user: str, **fields: str) -> HttpResponse:
        return client.post("/keys", {"name": "Phone", "reach": "user", "user": user, **fields})

    def test_acts_for_them_alone(self, company: Company, other_company: Company, owner: Client) -> None:
        shown = self.make(owner, "maren").content.decode()
        found = re.search(r"attune_\w{8}_\w{38}", shown)
        assert found
        key = api_key_resolve(found[0])
        assert (key.tenant, key.end_user) == (company.tenant, company.maren), "not the other company's maren"
        headers = {"authorization": f"Bearer {found[0]}"}
        companys = company.file()
        theirs = company.file(end_user=company.maren)
        listed = Client().get("/v1/files", headers=headers).json()["data"]
        assert [file["id"] for file in listed] == [theirs.public_id]
        assert Client().get(f"/v1/files/{companys.public_id}", headers=headers).status_code == 404
        assert ">maren</td>" in owner.get("/keys").content.decode()

    def test_of_one_never_seen_makes_them(self, company: Company, owner: Client) -> None:
        assert self.make(owner, "ada@example.com").status_code == 200
        assert ApiKey.objects.get(name="Phone").end_user.external_id == "ada@example.com"

    @pytest.mark.parametrize(
        ("user", "says"),
        [
            ("", "1 to 200 characters"),
            ("x" * 201, "at most 200 characters"),
            ("member:0", "are people with a login here"),
        ],
    )
    def test_for_nobody(self, company: Company, owner: Client, user: str, says: str) -> None:
        before = EndUser.objects.count()
        answer = self.make(owner, user)
        assert (answer.status_code, says in answer.content.decode()) == (422, True)
        assert '<input type="radio" name="reach" value="user" checked>' in answer.content.decode()
        assert not ApiKey.objects.filter(name="Phone").exists()
        assert EndUser.objects.count() == before, "a refused form leaves no trace"

    def test_not_for_another_member(self, company: Company, owner: Client) -> None:
        assert self.make(owner, company.teammate.end_user.external_id).status_code == 422

    def test_members_make_none(self, company: Company, teammate: Client) -> None:
        """Even if the form is forged."""
        assert 'name="user"' not in teammate.get("/keys").content.decode()
        self.make(teammate, "maren")
        assert ApiKey.objects.get(name="Phone").end_user == company.teammate.end_user

    def test_what_another_choice_was_given_does_not_count(self, company: Company, owner: Client) -> None:
        self.make(owner, "maren", reach="own")
        assert ApiKey.objects.get(name="Phone").end_user == company.owner.end_user


@pytest.mark.parametrize("path", ["/", "/files", "/training", "/training/new", "/models", "/chat"])
def test_an_empty_page_says_what_to_do_next(teammate: Client, path: str) -> None:
    page = teammate.get(path).content.decode()
    assert 'class="button primary"' in page or 'class="drop"' in page


class _Inline(HTMLParser):
    """Finds scripts that a strict Content-Security-Policy would stop."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs}
        if tag == "script" and "src" not in names:
            self.found.append("an inline script")
        self.found += [f"{name} on {tag}" for name in names if name.startswith(("on", "hx-on"))]
        self.found += [
            f"javascript: in {tag}" for _, value in attrs if (value or "").startswith("javascript:")
        ]


def test_no_inline_script_under_a_strict_policy(company: Company, owner: Client) -> None:
    made = things_of(company, company.owner)
    adapter_row(company, end_user=company.maren, active=True)
    paths = [
        "/",
        "/files",
        f"/files/{made.file.id}",
        "/training",
        "/training/new",
        f"/training/{made.job.id}",
    ]
    paths += ["/models", f"/models/{made.first.id}/delete", "/chat", "/keys", "/people", "/usage", "/nowhere"]
    for path in paths:
        answer = owner.get(path)
        page = _Inline()
        page.feed(answer.content.decode())
        assert page.found == [], path
        policy = dict(
            directive.strip().partition(" ")[::2]
            for directive in answer["content-security-policy"].split(";")
        )
        assert policy.get("script-src", policy["default-src"]) == "'self'"


def test_the_demo_models_label_stands_where_it_answers(company: Company, owner: Client) -> None:
    base = base_model()
    base.label = "Demo model, mostly English: shows style and few facts."
    base.save()
    adapter_row(company, end_user=company.owner.end_user, active=True)
    assert base.label in text_of(owner, "/chat")

"""What a training learns from: the file that was asked for, or the person is asked again."""

import html
import re
import uuid

import pytest
from django.test import Client

from tests.webapp.company import Company, base_model
from webapp.datasets.files import file_delete
from webapp.jobs.models import Job

pytestmark = pytest.mark.django_db


def chosen_file(page: str) -> str:
    """What a browser sends for the file: the chosen option, else the first."""
    select = page[page.index('<select name="file"') :].split("</select>")[0]
    chosen = re.search(r'value="([^"]*)" selected', select) or re.search(r'value="([^"]*)"', select)
    assert chosen
    return chosen[1]


def test_on_the_file_whose_button_was_pressed(company: Company, owner: Client) -> None:
    """The company's files, for those who may read them; never another one in its place."""
    companys = company.file()
    company.file(uploaded_by=company.owner.user, end_user=company.owner.end_user)
    for page in ("/files", f"/files/{companys.id}"):
        assert f"/training/new?file={companys.id}" in owner.get(page).content.decode()
    form = owner.get(f"/training/new?file={companys.id}").content.decode()
    assert chosen_file(form) == str(companys.id)
    assert "the company's" in html.unescape(form)
    owner.post("/training/new", {"file": companys.id, "method": "direft", "base": base_model().id})
    job = Job.objects.get()
    assert (job.training_file, job.end_user) == (companys, company.owner.end_user)


@pytest.mark.parametrize("which", ["made up", "no id", "deleted", "unusable", "a member's"])
def test_a_file_that_cannot_be_chosen_is_never_replaced(company: Company, owner: Client, which: str) -> None:
    company.file(uploaded_by=company.owner.user, end_user=company.owner.end_user)
    teammates = {"uploaded_by": company.teammate.user, "end_user": company.teammate.end_user}
    file = company.file(
        [{"x": 1}] if which == "unusable" else None, **(teammates if which == "a member's" else {})
    )
    if which == "deleted":
        file_delete(file=file)
    asked = {"made up": str(uuid.uuid4()), "no id": "newest"}.get(which, str(file.id))
    assert f"/training/new?file={asked}" not in owner.get("/files").content.decode()
    form = owner.get("/training/new", {"file": asked}).content.decode()
    assert "That file cannot be chosen." in form
    assert chosen_file(form) == ""
    again = owner.post("/training/new", {"file": asked, "method": "direft", "base": base_model().id})
    assert again.status_code == 422
    assert chosen_file(again.content.decode()) == ""


def test_whose_the_files_are_is_said(company: Company, owner: Client, teammate: Client) -> None:
    own = company.file(uploaded_by=company.teammate.user, end_user=company.teammate.end_user)
    company.file()
    for client, companys in ((owner, True), (teammate, False)):
        page = html.unescape(client.get("/files").content.decode())
        assert ("the company's" in page) == companys
    assert "with a key of the company" not in teammate.get(f"/files/{own.id}").content.decode()

"""The page of API keys: for whom a key is, is asked of those alone who make one for an end user."""

from types import SimpleNamespace
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from django.contrib.auth.models import AnonymousUser
from django.contrib.staticfiles import finders
from django.template.loader import render_to_string
from django.test import RequestFactory
from django.utils import timezone
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import Picture
from webapp.dashboard.views.keys import KeyForm
from webapp.tenants.models import Role

pytestmark = pytest.mark.browser


def keys_page() -> str:
    request = RequestFactory().get("/keys")
    request.user, request.membership = AnonymousUser(), SimpleNamespace(end_user_id=1, role=Role.OWNER)
    made = {"id": uuid4(), "prefix": "attune_ab12cd34", "created_at": timezone.now(), "last_used_at": None}
    ada = SimpleNamespace(external_id="customer-0193-ada.lovelace@a-rather-long-domain.example")
    keys = [
        {**made, "name": "Server", "end_user_id": None},
        {**made, "name": "Ada's phone", "end_user_id": 2, "end_user": ada, "member": None},
        {**made, "name": "Colleague", "end_user_id": 3, "member": object()},
        {**made, "name": "Scripts", "end_user_id": 1},
    ]
    context = {"form": KeyForm(), "is_manager": True, "keys": keys, "public_url": "http://attune.test"}
    return render_to_string("dashboard/keys.html", context, request)


def test_for_whom_is_asked_once_it_is_an_end_user(page: Page, picture: Picture) -> None:
    html = keys_page()

    def answer(route: Route) -> None:
        path = urlsplit(route.request.url).path
        if path == "/keys":
            route.fulfill(body=html, content_type="text/html; charset=utf-8")
        else:
            route.fulfill(path=str(finders.find(path.removeprefix("/static/"))))

    page.route("**/*", answer)
    page.goto("http://attune.test/keys")
    whom = page.get_by_label("Which end user?")
    expect(page.get_by_label("The company")).to_be_checked()
    expect(whom).to_be_hidden()
    page.get_by_label("One end user").check()
    expect(whom).to_be_visible()
    whom.fill("ada")
    picture("end-user")
    page.get_by_label("Me alone").check()
    expect(whom).to_be_hidden()
    picture("own")

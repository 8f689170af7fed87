"""The chat page before a slow server: what was begun anew stays new; no question leaves before the script is there."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import AnonymousUser
from django.contrib.staticfiles import finders
from django.template.loader import render_to_string
from django.test import RequestFactory
from playwright.sync_api import Page, Route, expect

from webapp.tenants.models import Role

pytestmark = pytest.mark.browser
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class Hesitant:
    """Serves the page and its files; the first question is answered by one word, and then nothing more comes."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.leave = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.partition("?")[0] == "/chat":
                    return self._send(chat_page().encode(), "text/html; charset=utf-8")
                found = finders.find(self.path.removeprefix("/static/"))
                self._send(
                    Path(found).read_bytes() if found else b"",
                    _TYPES.get(Path(self.path).suffix, "text/plain"),
                )

            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.asked.append(asked)
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                chunk = {"choices": [{"delta": {"content": "Hello"}}]}
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
                self.wfile.flush()
                if asked["messages"][-1]["content"] == "first":
                    outer.leave.wait(30)
                else:
                    self.wfile.write(b"data: [DONE]\n\n")

            def _send(self, body: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


def chat_page() -> str:
    request = RequestFactory().get("/chat")
    request.user, request.membership = AnonymousUser(), SimpleNamespace(end_user_id=None, role=Role.MEMBER)
    base = SimpleNamespace(name="tiny", label="")
    adapter = SimpleNamespace(id=uuid4(), end_user_id=None, version=1, method="direft", base=base)
    context = {"adapters": [adapter], "active": adapter.id, "chosen": adapter, "base": base}
    return render_to_string("dashboard/chat.html", context, request)


@pytest.fixture
def hesitant() -> Iterator[Hesitant]:
    served = Hesitant()
    threading.Thread(target=served.server.serve_forever, daemon=True).start()
    yield served
    served.leave.set()
    served.server.shutdown()
    served.server.server_close()


def test_starting_over_in_the_middle_of_an_answer(hesitant: Hesitant, page: Page) -> None:
    page.goto(f"{hesitant.url}/chat")
    question = page.get_by_label("Your question")
    for words in ("first", "second"):
        question.fill(words)
        page.get_by_role("button", name="Send").click()
        expect(page.locator(".turn .words").nth(1)).to_have_text("Hello")
        if words == "first":
            page.get_by_role("button", name="Start over").click()
            expect(page.locator(".turn")).to_have_count(0)
            expect(page.get_by_role("button", name="Send")).to_be_visible()
    again = [asked["messages"] for asked in hesitant.asked[2:]]
    assert again == [[{"role": "user", "content": "second"}]] * 2, "nothing of the conversation before"


def test_a_question_waits_for_the_script(hesitant: Hesitant, page: Page) -> None:
    held: list[Route] = []
    page.route("**/chat.js", lambda route: held.append(route))
    page.goto(f"{hesitant.url}/chat", wait_until="commit")
    page.get_by_label("Your question").fill("second")
    send = page.get_by_role("button", name="Send")
    expect(send).to_be_disabled()
    for idea in page.locator("[data-idea]").all():
        expect(idea).to_be_disabled()
    held.pop().continue_()
    send.click()
    expect(page.locator(".turn .words").nth(1)).to_have_text("Hello")
    assert page.url == f"{hesitant.url}/chat", "the question is in no address"

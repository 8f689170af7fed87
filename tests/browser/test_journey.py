"""The whole way of a person through the dashboard, on the whole stack: sign up, upload, train, chat."""

import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from local_stack.stack import Stack
from tests.browser.conftest import Picture

pytestmark = [pytest.mark.browser, pytest.mark.stack]

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "tea first, then the sea"
TRAINING_MS = 420_000
ANSWER_MS = 120_000


@pytest.fixture
def chats(tmp_path: Path) -> Path:
    """Twenty of the demo's conversations, and a row that is broken."""
    lines = (ROOT / "local_stack" / "demo_data" / "maren.jsonl").read_text().splitlines()[:20]
    file = tmp_path / "my-chats.jsonl"
    file.write_text("\n".join([*lines, '{"messages": [}']) + "\n")
    return file


def test_journey(stack: Stack, page: Page, picture: Picture, chats: Path) -> None:
    web = stack.urls["web"]
    email = f"{uuid.uuid4().hex[:8]}@example.com"

    page.goto(f"{web}/signup")
    page.get_by_label("E-mail").fill(email)
    page.get_by_label("Company").fill("Fjord & Co")
    page.get_by_label("Password").fill(PASSWORD)
    picture("1-sign-up")
    page.get_by_role("button", name="Sign up").click()
    expect(page.get_by_role("heading", name="A model of your own in three steps")).to_be_visible()
    picture("2-home")

    page.get_by_role("link", name="Upload chats").click()
    page.get_by_label("Drop a file here, or choose one").set_input_files(chats)
    expect(page.get_by_text("20 of 21 rows are good.")).to_be_visible()
    expect(page.get_by_text("Line 21")).to_be_visible()
    page.wait_for_load_state("load")  # the button is the script's
    page.get_by_role("button", name="Show the tokens").click()
    expect(page.locator(".tokens mark").first).to_be_visible()
    picture("3-report")

    page.get_by_role("link", name="Train on this file").click()
    expect(page.get_by_label("DiReFT (recommended)")).to_be_checked()
    # Few, because each takes its time here.
    page.get_by_text("More choices").click()
    page.get_by_label("Passes over the data").fill("3")
    picture("4-train")
    page.get_by_role("button", name="Start training").click()
    expect(page.get_by_role("button", name="Cancel training")).to_be_visible()
    # Its loss is drawn while it trains, without a reload.
    expect(page.get_by_role("img", name="Training loss")).to_be_visible(timeout=TRAINING_MS)
    picture("5-training")
    expect(page.get_by_role("link", name="Chat with it")).to_be_visible(timeout=TRAINING_MS)
    expect(page.get_by_text("Done", exact=True)).to_be_visible()
    picture("6-trained")

    page.get_by_role("link", name="Chat with it").click()
    expect(page.get_by_text("Demo model", exact=False).first).to_be_visible()
    page.get_by_text("Settings").click()
    page.get_by_label("Longest answer, in tokens").fill("48")  # a model of so few passes may go on and on
    base = ask_both(page, "Where do you live?")
    ask_both(page, "And what do you drink in the morning?")
    own = page.locator('.reply[data-side="own"] .words').first.inner_text()
    assert own != base, "the adapter changes what the model says"
    picture("7-chat", whole_page=False)

    for name, heading in (
        ("Models", "Models"),
        ("API keys", "API keys"),
        ("People", "People"),
        ("Usage", "Usage"),
    ):
        page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible()
        picture(f"8-{name.lower().replace(' ', '-')}")
    # Two questions, each to both sides.
    expect(page.locator(".figure", has_text="Requests").locator("dd")).to_have_text("4")

    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()


def test_staff_see_the_installation_live(stack: Stack, page: Page, picture: Picture) -> None:
    """Made by Django's own command; the engine's numbers are read from the real engine."""
    email = f"{uuid.uuid4().hex[:8]}@example.com"
    subprocess.run(
        [sys.executable, "manage.py", "createsuperuser", "--noinput", "--email", email],
        cwd=ROOT,
        env={**os.environ, **stack.env, "DJANGO_SUPERUSER_PASSWORD": PASSWORD},
        capture_output=True,
        check=True,
    )
    page.goto(f"{stack.urls['web']}/login")
    page.get_by_label("E-mail").fill(email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Installation")).to_be_visible()
    places = page.locator(".figure", has_text="Adapter places taken").locator("dd")
    # How many there are is known from the first adapter on.
    expect(places).to_have_text(re.compile(r"^(–|0 of \d+)$"))
    # The page asks again by itself, and then knows how much was generated in between.
    rate = page.locator(".figure", has_text="Generated now").locator("dd")
    expect(rate).to_have_text("0.0 tokens/s", timeout=15_000)
    picture("installation")


def ask_both(page: Page, question: str) -> str:
    """Ask, wait until both sides are through, and return what the base model said."""
    page.get_by_label("Your question").fill(question)
    page.get_by_role("button", name="Send").click()
    turn = page.locator(".turn").last
    for side in ("base", "own"):
        card = turn.locator(f'[data-side="{side}"]')
        expect(card.locator(".meta")).to_contain_text("tokens", timeout=ANSWER_MS)
        expect(card.locator(".words")).not_to_be_empty()
    return turn.locator('[data-side="base"] .words').inner_text()

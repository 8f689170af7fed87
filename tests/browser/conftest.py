"""Chromium, as the system has it, and pictures of what it saw: test-artifacts/ holds them after the run."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

ARTIFACTS = Path(__file__).resolve().parents[2] / "test-artifacts"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
#: Nothing of the browser's own speaks to the network.
_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}

Picture = Callable[..., None]


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Ends with its module: until then Playwright's event loop runs here, and no other test could `asyncio.run`."""
    if CHROMIUM is None:
        pytest.fail(
            "There is no Chromium: run `apt-get install -y chromium` (as root), then the tests again."
        )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=_ARGS)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A fresh browser window. Whatever the pages complained about in the console fails the test at its end."""
    context = chromium.new_context(viewport=DESKTOP)
    page = context.new_page()
    complaints: list[str] = []
    page.on(
        "console", lambda line: complaints.append(line.text) if line.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    assert complaints == []


@pytest.fixture
def picture(page: Page, request: pytest.FixtureRequest) -> Picture:
    """Take the page at desktop and phone width; fails where a phone would have to scroll sideways."""
    folder = ARTIFACTS / request.node.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    def take(name: str, *, whole_page: bool = True) -> None:
        for width, size in (("desktop", DESKTOP), ("phone", PHONE)):
            page.set_viewport_size(size)
            page.screenshot(path=folder / f"{name}-{width}.png", full_page=whole_page)
            wider = page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert wider == 0, f"{name} is {wider} px too wide at {width} width"
        page.set_viewport_size(DESKTOP)

    return take

"""A headless Chromium that looks at a whole service, and listens for what no page should say."""

import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

from tests.e2e.service import Service

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 60_000
"""How long a condition may take: a first picture waits for the worker's imports, on a machine with other work."""
DESKTOP = {"width": 1280, "height": 900}
OUTAGE = "net::ERR_"
"""What Chromium says of requests that met no server; a test that stops the server expects it."""

OpenPage = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for a module. It ends before other modules begin: Playwright holds the event loop while it runs."""
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if path is None:
        pytest.skip(f"THE PAGE IS NOT TESTED: none of {', '.join(CHROMIUM)} is installed (apt-get install chromium)")
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """A whole service with the built-in model."""
    with tempfile.TemporaryDirectory(prefix="kargah-page-") as folder:
        service = Service(Path(folder) / "data", KARGAH_BACKOFF_MS="200", KARGAH_PROGRESS_INTERVAL_MS="20")
        try:
            service.start()
            yield service
        finally:
            service.end()


@pytest.fixture
def complaints() -> list[str]:
    """Everything the pages have complained of: errors, warnings and violations of the policy, in the console or thrown.

    Whatever is left in it at the end fails the test.
    """
    return []


@pytest.fixture
def open_page(browser: Browser, service: Service, complaints: list[str]) -> Iterator[OpenPage]:
    """Opens the page as a visitor with these options of a browser context."""
    contexts = []

    def listen(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    def open_page(**options: Any) -> Page:
        context = browser.new_context(**{"viewport": DESKTOP, "locale": "en-GB", **options})
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        page = context.new_page()
        page.on("console", listen)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(service.url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    """The page as an English visitor at a desk sees it."""
    return open_page()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the service's log with a failure."""
    report = yield
    service = getattr(item, "funcargs", {}).get("service")
    if isinstance(service, Service) and report.failed:
        report.sections.append(("service", service.tail()))
    return report

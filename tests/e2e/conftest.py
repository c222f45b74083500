"""A whole service for each module, and a receiver for its webhooks."""

import tempfile
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from orchestrator.client import Client
from tests.e2e.service import Service
from tests.webhooks.receiver import Receiver


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    """A service that is ready. A test that stops it starts it again."""
    with tempfile.TemporaryDirectory(prefix="kargah-e2e-") as folder:
        service = Service(
            Path(folder) / "data",
            KARGAH_BACKOFF_MS="200",
            KARGAH_LEASE_MS="4000",
            KARGAH_PROGRESS_INTERVAL_MS="20",
        )
        try:
            service.start()
            yield service
        finally:
            service.end()


@pytest.fixture
def client(service: Service) -> Iterator[Client]:
    """A client of the service."""
    with service.client() as client:
        yield client


@pytest.fixture
async def sink() -> AsyncIterator[Receiver]:
    """A receiver of webhooks on loopback."""
    async with Receiver() as receiver:
        yield receiver


@pytest.fixture
def webhook(service: Service) -> Webhook:
    """Verifies what the service has signed, by the reference library."""
    return Webhook(service.secret)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the service's log with a failure."""
    report = yield
    service = getattr(item, "funcargs", {}).get("service")
    if isinstance(service, Service) and report.failed:
        report.sections.append(("service", service.tail()))
    return report

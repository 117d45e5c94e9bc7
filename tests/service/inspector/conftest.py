"""One Chromium for all tests of a file."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.chromium import CHROMIUM, OPTIONS
from tests.service.inspector.support import PATIENT_MS, Seen, looking
from tests.service.support import Server

expect.set_options(timeout=PATIENT_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def seen(browser: Browser, server: Server) -> Iterator[Seen]:
    """A tab of somebody who is logged in."""
    with looking(browser, server) as seen:
        seen.log_in(server.secret)
        yield seen

"""One Chromium for all tests of a file."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests.chromium import CHROMIUM, OPTIONS
from tests.service.inspector.support import PATIENT_MS

expect.set_options(timeout=PATIENT_MS)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()

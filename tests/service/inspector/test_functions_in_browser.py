"""Reward functions in a real Chromium: uploaded, listed and shown."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.chromium import needs_chromium
from tests.service.inspector.support import EVIL, Seen, looking, showing
from tests.service.support import Server, new_name

pytestmark = [needs_chromium, pytest.mark.slow]

HOSTILE = f'"""{EVIL}"""\n\n\ndef reward(completions, **kwargs):\n    raise ValueError({EVIL!r})\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("service")
    with showing(directory, directory / "runs") as server:
        yield server


def upload(page: Page, file: Path, name: str) -> None:
    page.get_by_role("textbox", name="Name").fill(name)
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Upload").click()


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_a_function_is_uploaded_and_every_page_is_readable_and_planted_markup_does_nothing(
    browser: Browser, server: Server, tmp_path: Path, width: int, scheme: str
) -> None:
    (tmp_path / "bad.py").write_text("def reward(completions:\n")
    (tmp_path / "good.py").write_text(HOSTILE)
    name = new_name()
    with looking(browser, server, width, scheme) as seen:
        page = seen.page
        seen.log_in(server.secret)
        seen.go("/functions")
        page.wait_for_url("**/functions")  # whole: without functions the form is open
        if not page.get_by_label("File").is_visible():
            page.get_by_text("Upload one", exact=True).click()
        upload(page, tmp_path / "bad.py", name)
        expect(page.get_by_role("alert")).to_contain_text("line 1")
        seen.messages.clear()  # Chromium tells of the 400
        upload(page, tmp_path / "good.py", name)
        page.wait_for_url(re.compile(r"/functions/rf_"))
        expect(page.get_by_role("status").filter(has_text="Saved as version 1")).to_be_visible()
        expect(page.locator("pre.source")).to_contain_text("<script>window.hacked=1</script>")
        check_readable(seen)
        page.get_by_role("link", name="Reward functions").first.click()
        expect(page.get_by_role("link", name=name, exact=True)).to_be_visible()
        check_readable(seen)


def check_readable(seen: Seen) -> None:
    seen.assert_readable()
    seen.assert_fits()
    seen.assert_quiet()

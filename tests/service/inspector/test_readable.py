"""Whoever sees little, or nothing, can use the pages: contrast, names of controls, headings, and titles."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.chromium import needs_chromium
from tests.service.inspector.support import Seen, looking, serving
from tests.service.support import BREVITY, Server
from tests.tracking.report.support import write_run

pytestmark = needs_chromium

PAGES = ("", "/rollouts?step=2&q=reasoning", "/steps/2/groups/0", "/compare?step=1&other=3", "/nothing")
FINDINGS = [
    {"name": "dead_groups", "severity": severity, "step": 2, "summary": "So it is.", "evidence": {"share": 0.5},
     "rollout_ids": ["2_0_1"], "edits": ["seed=1"], "subject": "correct"}
    for severity in ("error", "warning", "info")
]  # fmt: skip

QUESTIONS = Path(__file__).with_name("readable.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("inspector")
    runs: Path = directory / "runs"
    runs.mkdir()
    write_run(runs / "one", 3, unscored_share=0.3, findings=FINDINGS)
    with serving(directory, runs) as server:
        alice = server.store.keys.authenticate(server.secret)
        server.store.reward_functions.create(alice, "brevity", BREVITY, "trl")
        yield server


def ask(page: Page, question: str) -> Any:
    return page.evaluate(f"({QUESTIONS}).{question}()")


def check(seen: Seen, where: str) -> None:
    page = seen.page
    page.locator("details").evaluate_all("(all) => all.forEach((one) => { one.open = true; })")
    assert ask(page, "lowContrast") == [], where
    assert ask(page, "nameless") == [], where
    assert ask(page, "repeatedIds") == [], where
    levels = ask(page, "headings")
    assert levels[0] == 1, where
    assert levels.count(1) == 1, where
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), (where, levels)
    assert page.title().endswith("· agent_tunix"), where
    assert page.evaluate("document.documentElement.lang") == "en", where


def write_state(root: Path, **status: Any) -> None:
    (root / "status.json").write_text(json.dumps({"overrides": []} | status), encoding="utf-8")


@pytest.mark.parametrize("width", [1024, 1280])
def test_a_run_that_failed_at_length_leaves_room_for_the_rest(browser: Browser, tmp_path: Path, width: int) -> None:
    runs = tmp_path / "runs"
    write_run(runs / "a run with a name", 1)
    write_state(runs / "a run with a name", status="failed", detail="RewardError: " + "why " * 60 + "y" * 200)
    with serving(tmp_path, runs) as server, looking(browser, server, width) as seen:
        seen.log_in(server.secret)
        boxes = [seen.page.get_by_role("link", name="a run with a name").bounding_box()]
        boxes.append(seen.page.get_by_role("cell").filter(has_text="UTC").bounding_box())
        name, started = (box for box in boxes if box is not None)
        assert name["width"] > name["height"]
        assert started["x"] + started["width"] <= width
        assert started["width"] > started["height"]


@pytest.mark.parametrize("width", [390, 1280])
def test_what_components_say_is_not_cut_in_a_group(browser: Browser, server: Server, width: int) -> None:
    with looking(browser, server, width) as seen:
        seen.log_in(server.secret)
        seen.page.get_by_role("link", name="one").click()
        seen.page.wait_for_url("**/runs/run_*")
        seen.page.goto(f"{seen.page.url}/steps/2/groups/0")
        tables = seen.page.get_by_role("region", name="Components of the reward")
        tables.first.wait_for()
        assert tables.evaluate_all("(all) => all.every((one) => one.scrollWidth <= one.clientWidth)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_page_can_be_read(browser: Browser, server: Server, width: int, scheme: str) -> None:
    with looking(browser, server, width, scheme) as seen:
        seen.go("/login")
        check(seen, "/login")
        seen.page.get_by_label("API key").fill("vk_wrong")
        seen.page.keyboard.press("Enter")
        seen.page.get_by_role("alert").wait_for()
        check(seen, "/login, refused")
        seen.log_in(server.secret)
        check(seen, "/runs")
        seen.page.get_by_role("link", name="one").click()
        seen.page.wait_for_url("**/runs/run_*")
        url = seen.page.url
        for path in PAGES:
            seen.page.goto(url + path)
            if not path:
                seen.page.locator("#sections .chart").first.scroll_into_view_if_needed()
                seen.page.locator("#sections .chart svg polyline").first.wait_for(state="attached")
            check(seen, path)
        seen.page.keyboard.press("?")
        check(seen, "keys")
        seen.go("/functions")
        check(seen, "/functions")
        seen.page.get_by_role("link", name="brevity").click()
        seen.page.get_by_role("textbox", name="Source").fill(BREVITY.decode().replace("80", "90"))
        seen.page.get_by_role("combobox", name="Run").select_option(index=1)
        seen.page.get_by_role("button", name="Replay", exact=True).click()
        seen.page.locator("#replayed article").first.wait_for()
        check(seen, "a function, replayed")

"""The pages of runs in a real Chromium: by mouse and keyboard, wide and narrow, live, and with markup in every text."""

import fcntl
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.chromium import needs_chromium
from tests.service.inspector.support import EVIL, Seen, looking, showing
from tests.service.support import Server
from tests.tracking.report.support import plain_response, write_run

pytestmark = [needs_chromium, pytest.mark.slow]

FINDING = {
    "name": "dead_groups",
    "severity": "error",
    "step": 4,
    "summary": EVIL,
    "subject": EVIL,
    "evidence": {EVIL: EVIL},
    "rollout_ids": ["4_1_2"],
    "edits": [EVIL],
}
PAGES = ("", "/rollouts", "/rollouts?step=4&q=reasoning", "/steps/4/groups/0", "/compare?step=1&other=6", "/nothing")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of runs: one whose every text would like to act, and one that a test may go on with."""
    directory = tmp_path_factory.mktemp("inspector") / "runs"
    directory.mkdir()
    root = directory / "<img src=x onerror=window.hacked=1>"
    write_run(
        root,
        6,
        ("correct", EVIL, "brevity"),
        respond=lambda step, place: EVIL if place % 4 == 3 else plain_response(step, place),
        unscored_share=0.1,
        findings=[FINDING | {"severity": severity} for severity in ("error", "warning", "info")],
    )
    config = (root / "config.yaml").read_text()
    (root / "config.yaml").write_text(config.replace("seed: 0", f"seed: {json.dumps(EVIL)}"))
    write_run(directory / "live", 3)
    write_run(directory / "episodes", 2, episodes_of=EVIL)
    return directory


@pytest.fixture(scope="module")
def server(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with showing(tmp_path_factory.mktemp("store"), runs) as server:
        yield server


def open_run(page: Page, name: str) -> str:
    """Follow the link of a run; where that leads."""
    page.get_by_role("link", name=name, exact=False).first.click()
    page.wait_for_url(re.compile("/runs/run_"))
    return page.url


def wait_for_curves(page: Page) -> None:
    """They are drawn as they come into view."""
    page.locator("#sections .chart").first.scroll_into_view_if_needed()
    page.locator("#sections .chart svg polyline").first.wait_for(state="attached")


def test_logging_in_and_out(browser: Browser, server: Server) -> None:
    with looking(browser, server) as seen:
        seen.go("/runs?x=1")
        expect(seen.page.get_by_label("API key")).to_be_focused()
        seen.assert_readable()
        seen.page.get_by_label("API key").fill("vk_wrong")
        seen.page.keyboard.press("Enter")
        expect(seen.page.get_by_role("alert")).to_contain_text("not valid")
        seen.assert_readable()
        seen.messages.clear()  # Chromium reports the 401
        seen.page.get_by_label("API key").fill(server.secret)
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_url("**/runs?x=1")
        seen.page.get_by_role("button", name="Log out").click()
        seen.page.wait_for_url("**/login")
        seen.go("/runs")
        assert "/login" in seen.page.url


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_every_page_is_readable_and_planted_markup_does_nothing(
    browser: Browser, server: Server, width: int, scheme: str
) -> None:
    with looking(browser, server, width, scheme) as seen:
        seen.log_in(server.secret)
        expect(seen.page.get_by_role("heading", name="Runs")).to_be_visible()
        seen.assert_readable()
        seen.assert_fits()
        url = open_run(seen.page, "onerror")
        for path in PAGES:
            seen.page.goto(url + path)
            if not path:
                wait_for_curves(seen.page)
            seen.assert_readable()
            seen.assert_fits()
            assert EVIL in seen.page.locator("main").inner_text() or path, path
            if "groups" in path:
                tables = seen.page.get_by_role("region", name="Components of the reward")
                tables.first.wait_for()
                assert tables.evaluate_all("(all) => all.every((one) => one.scrollWidth <= one.clientWidth)")
        seen.messages = [message for message in seen.messages if "404" not in message]  # of the last page
        seen.page.keyboard.press("?")
        seen.assert_readable()
        seen.assert_fits()
        seen.assert_quiet()


@contextmanager
def going_on(root: Path) -> Iterator[None]:
    """Have a run be at work: it says so, and holds its lock."""
    tell(root, "running")
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def tell(root: Path, state: str, detail: str = "") -> None:
    (root / "status.json").write_text(json.dumps({"status": state, "overrides": [], "detail": detail}))


def replace(path: Path, content: str) -> None:
    """As a run does that resumes."""
    other = path.with_suffix(".tmp")
    other.write_text(content)
    other.replace(path)


def append(root: Path, *steps: int) -> None:
    """Add rows like the last one, each with another reward."""
    path = root / "metrics.jsonl"
    last = json.loads(path.read_text().splitlines()[-1])
    with path.open("a") as file:
        for step in steps:
            file.write(json.dumps(last | {"step": step, "rewards/total/mean": float(step)}) + "\n")


def test_the_curves_of_a_run_move_while_it_goes_on(seen: Seen, runs: Path) -> None:
    root = runs / "live"
    aside = (root / "rollouts").rename(runs / "aside")  # none are kept yet
    with going_on(root):
        open_run(seen.page, "live")
        wait_for_curves(seen.page)
        curves = seen.page.locator("#curves")
        line = seen.page.locator("#sections .chart svg polyline").first
        expect(curves).to_have_attribute("data-step", "3")
        drawn = line.get_attribute("points")
        expect(seen.page.get_by_role("link", name="Rollouts", exact=True)).to_have_count(0)
        aside.rename(root / "rollouts")
        append(root, 4, 5)
        expect(curves).to_have_attribute("data-step", "5")
        assert line.get_attribute("points") != drawn
        expect(seen.page.locator("#summary")).to_contain_text("Step5")
        expect(seen.page.get_by_role("link", name="Rollouts", exact=True)).to_be_visible()
        (root / "findings.jsonl").write_text(json.dumps(FINDING | {"summary": "It has just died."}) + "\n")
        tell(root, "finished")
        expect(curves).to_have_attribute("data-state", "finished")
        expect(seen.page.locator("#summary")).to_contain_text("finished")
        expect(seen.page.locator("#findings")).to_contain_text("It has just died.")
        seen.assert_quiet()


def test_the_curves_of_a_run_that_went_back_are_drawn_anew(seen: Seen, runs: Path) -> None:
    root = runs / "live"
    with going_on(root):
        open_run(seen.page, "live")
        sections = seen.page.locator("#sections > section")
        expect(sections.filter(has_text="Time of each step by phase")).to_have_count(1)
        kept = {"step": 1, "rewards/total/mean": 0.5}
        replace(root / "metrics.jsonl", json.dumps(kept) + "\n")
        expect(seen.page.locator("#curves")).to_have_attribute("data-step", "1")
        expect(sections).to_have_count(1)
        seen.assert_quiet()


def test_a_page_recovers_when_the_server_was_away(seen: Seen, runs: Path) -> None:
    with going_on(runs / "live"):
        open_run(seen.page, "live")
        expect(seen.page.locator("#curves")).to_have_attribute("data-state", "running")
        seen.page.route("**/curves.json*", lambda route: route.fulfill(status=503))
        expect(seen.page.locator("#progress")).to_contain_text("does not answer")
        seen.page.unroute("**/curves.json*")
        append(runs / "live", 9)
        expect(seen.page.locator("#curves")).to_have_attribute("data-step", "9")


def test_the_list_of_runs_follows_a_run(seen: Seen, runs: Path) -> None:
    shutil.copytree(runs / "live", runs / "began just now")
    try:
        expect(seen.page.get_by_role("link", name="began just now")).to_be_visible()
    finally:
        shutil.rmtree(runs / "began just now")


def test_a_rollout_is_found_and_its_group_opened(seen: Seen) -> None:
    url = open_run(seen.page, "onerror")
    seen.page.get_by_role("link", name="Rollouts", exact=True).click()
    seen.page.wait_for_url("**/rollouts?step=6")
    seen.page.keyboard.press("/")
    seen.page.keyboard.type("3*5=15")
    seen.page.get_by_label("Step", exact=True).fill("")
    seen.page.get_by_label("Within a step").select_option("highest reward first")
    seen.page.get_by_role("button", name="Show").click()
    found = seen.page.locator("article.rollout")
    expect(found).to_have_count(6)
    expect(found.first.locator("mark.answer")).to_have_text("15")
    expect(found.first.locator("mark.hit")).to_have_text("3*5=15")
    address = seen.page.url
    found.nth(2).get_by_role("link").first.click()
    seen.page.wait_for_url(f"{url}/steps/3/groups/1#r-3_1_1")
    expect(seen.page.locator("article:target")).to_contain_text("3*5=15")
    seen.page.go_back()
    assert seen.page.url == address
    seen.assert_quiet()


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_an_episode_is_a_readable_conversation(browser: Browser, server: Server, width: int, scheme: str) -> None:
    with looking(browser, server, width, scheme) as seen:
        seen.log_in(server.secret)
        url = open_run(seen.page, "episodes")
        for path in ("/rollouts", "/steps/1/groups/0", "/compare"):
            seen.page.goto(url + path)
            call = seen.page.locator("details.call").first
            expect(call.locator("summary")).to_contain_text(EVIL)
            expect(call.locator("pre").first).to_be_hidden()
            call.locator("summary").press("Enter")
            expect(call.locator("pre").last).to_have_text(f"the result {EVIL}")
            seen.assert_readable()
            seen.assert_fits()
        seen.page.goto(f"{url}/rollouts")
        seen.page.get_by_label("Ended").select_option("finished")
        seen.page.get_by_label("Called tool").fill(EVIL)
        seen.page.get_by_role("button", name="Show").click()
        seen.page.wait_for_url("**stop_reason=finished*")
        expect(seen.page.get_by_role("article")).to_have_count(8)
        seen.assert_quiet()


def test_completions_are_browsed_by_keyboard(seen: Seen) -> None:
    url = open_run(seen.page, "onerror")
    seen.page.goto(f"{url}/rollouts")
    search = seen.page.get_by_role("searchbox")
    search.focus()
    seen.page.keyboard.type("jk/?gr n")  # in a field, keys are text
    expect(search).to_have_value("jk/?gr n")
    seen.page.locator("main").focus()
    focused = "document.activeElement.id"
    for pressed, expected in (("j", "r-1_0_0"), ("j", "r-1_0_1"), ("j", "r-1_0_2"), ("k", "r-1_0_1")):
        seen.page.keyboard.press(pressed)
        assert seen.page.evaluate(focused) == expected
    seen.page.keyboard.press("n")
    seen.page.wait_for_url("**after=*")
    seen.page.keyboard.press("p")
    seen.page.wait_for_url(f"{url}/rollouts")
    seen.page.keyboard.press("j")
    seen.page.keyboard.press("o")
    seen.page.wait_for_url("**/steps/1/groups/0*")
    seen.page.keyboard.press("n")
    seen.page.wait_for_url("**/steps/1/groups/1")
    seen.page.keyboard.press("?")
    expect(seen.page.get_by_role("dialog", name="Keys")).to_be_visible()
    seen.page.keyboard.press("j")
    seen.page.keyboard.press("Escape")
    expect(seen.page.get_by_role("dialog", name="Keys")).to_be_hidden()
    seen.page.keyboard.press("g")
    seen.page.keyboard.press("r")
    seen.page.wait_for_url("**/runs")
    seen.assert_quiet()


def test_the_first_tab_leads_to_the_content(seen: Seen) -> None:
    seen.page.keyboard.press("Tab")
    skip = seen.page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    assert seen.page.evaluate("getComputedStyle(document.activeElement).outlineWidth") == "3px"
    seen.page.keyboard.press("Enter")
    assert seen.page.evaluate("document.activeElement.id") == "main"


def test_a_revoked_key_is_logged_out_when_the_page_asks_for_more(browser: Browser, server: Server) -> None:
    secret = server.store.keys.create("erin")[1]

    def revoke_before(route: Route) -> None:
        server.store.keys.revoke("erin")
        route.continue_()

    with looking(browser, server) as seen:
        seen.log_in(secret)
        seen.page.route("**/curves.json*", revoke_before)
        open_run(seen.page, "onerror")
        expect(seen.page.get_by_role("heading", name="Log in")).to_be_visible()


def test_all_but_the_curves_works_without_scripts(browser: Browser, server: Server) -> None:
    with looking(browser, server, scripts=False) as seen:
        page = seen.page
        seen.log_in(server.secret)
        open_run(page, "onerror")
        expect(page.get_by_text("The curves need JavaScript")).to_be_visible()
        page.get_by_role("link", name="Rollouts", exact=True).click()
        page.get_by_role("searchbox").fill("3*5")
        page.get_by_role("button", name="Show").click()
        expect(page.locator("article.rollout")).to_have_count(1)

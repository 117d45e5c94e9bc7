"""`report.html` in a real Chromium: it draws, answers to pointer and keyboard, and asks for and runs nothing else."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from agent_tunix.tracking.report import write_report
from tests.chromium import CHROMIUM, OPTIONS, needs_chromium
from tests.tracking.report.support import plain_response, write_run

pytestmark = [needs_chromium, pytest.mark.slow]

EVIL = "<script>window.hacked=1</script><img src=https://example.invalid/x onerror=window.hacked=1></script><!--"
EVIL_NAME = "</script><svg onload=window.hacked=1>"
FINDING = {
    "name": "dead_groups",
    "severity": "warning",
    "step": 4,
    "summary": EVIL,
    "evidence": {EVIL_NAME: EVIL},
    "rollout_ids": ["4_1_2"],
    "edits": [EVIL],
}
NUM_ROLLOUTS = 6 * 8


@dataclass
class Seen:
    """A page, the messages of its console and its uncaught errors, and the addresses it asked for."""

    page: Page
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose completions, component names and findings are markup that would like to run."""
    root = tmp_path_factory.mktemp("report") / "run"
    run = write_run(
        root,
        6,
        ("correct", EVIL_NAME, "brevity"),
        respond=lambda step, place: EVIL if place == 3 else plain_response(step, place),
        unscored_share=0.2,
        findings=[FINDING],
    )
    return write_report(run, root, plots=False)


@contextmanager
def opened(browser: Browser, path: Path, width: int = 1280, *, dark: bool = False, at: str = "") -> Iterator[Seen]:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light")
    seen = Seen(context.new_page())
    seen.page.on("console", lambda message: seen.messages.append(message.text))
    seen.page.on("pageerror", lambda error: seen.messages.append(str(error)))
    seen.page.on("request", lambda request: seen.requests.append(request.url))
    seen.page.goto(path.as_uri() + at)
    # Charts are drawn as they come into view.
    seen.page.evaluate("document.querySelectorAll('.chart').forEach((figure) => figure.redraw())")
    yield seen
    context.close()


@pytest.fixture
def seen(browser: Browser, report: Path) -> Iterator[Seen]:
    with opened(browser, report) as seen:
        yield seen


@pytest.fixture
def page(seen: Seen) -> Page:
    return seen.page


def cells(page: Page, column: int) -> list[str]:
    return page.locator(f"#table tbody tr td:nth-child({column})").all_inner_texts()


def totals(page: Page) -> list[float]:
    """Return the totals of the rows that have one."""
    found = [text.replace("−", "-") for text in cells(page, 3)]
    return [float(text) for text in found if text.lstrip("-")[:1].isdigit()]


def heading(page: Page) -> Locator:
    return page.get_by_role("dialog").get_by_role("heading", level=2)


def choose_preset(page: Page, name: str) -> None:
    """Choose an order, and wait for the timer that the page answers with."""
    page.locator("[name=preset]").select_option(name)
    page.evaluate("new Promise((done) => setTimeout(done))")


@pytest.mark.parametrize(("width", "dark"), [(390, False), (1280, True)])
def test_it_opens_in_silence_and_fits_the_screen(browser: Browser, report: Path, width: int, dark: bool) -> None:
    with opened(browser, report, width, dark=dark) as seen:
        seen.page.locator("#table tbody button").first.click()
        assert seen.page.evaluate("document.documentElement.scrollWidth") == width
        assert seen.page.evaluate("document.getElementById('rollout').scrollWidth") <= width
        assert seen.messages == []
        assert [url for url in seen.requests if not url.startswith("data:")] == [report.as_uri()]


def test_every_chart_has_something_drawn_and_says_what(page: Page) -> None:
    charts = page.locator(".chart > svg")
    assert charts.count() > 15
    for chart in charts.all():
        assert chart.locator("polyline, polygon, rect").count()
        assert (chart.get_attribute("aria-label") or "").count("undefined") == 0


def test_markup_in_a_completion_a_name_or_a_finding_does_not_run(seen: Seen) -> None:
    page = seen.page
    page.get_by_role("searchbox").fill("onerror=window")
    expect(page.locator("#table tbody tr")).to_have_count(6)
    page.locator("#table tbody button").first.click()
    assert page.locator("#response").inner_text() == EVIL
    assert page.get_by_text(EVIL_NAME, exact=True).count()
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main svg[onload], dialog img, dialog script, dialog svg").count() == 0
    assert seen.messages == []


def test_an_episode_is_a_conversation_with_folded_calls(browser: Browser, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 2, episodes_of=EVIL)
    with opened(browser, write_report(run, run.root, plots=False), 390, dark=True, at="#rollout/1_0_0") as seen:
        page = seen.page
        turns = page.locator("#conversation > li")
        assert [text.split("\n")[0] for text in turns.all_inner_texts()] == ["Policy", "Environment", "Policy"]
        good, malformed = page.locator("details.call").all()
        assert good.locator("summary").inner_text() == f"{EVIL} 250\u00a0ms"
        assert "malformed" in malformed.locator("summary").inner_text()
        assert not good.get_by_text("the result").is_visible()
        good.locator("summary").press("Enter")
        assert good.locator("pre").all_inner_texts() == [json.dumps({"expression": EVIL}), f"the result {EVIL}"]
        assert page.get_by_text(f"fault {EVIL}").is_visible()
        assert page.evaluate("document.getElementById('rollout').scrollWidth") <= 390
        page.keyboard.press("Escape")
        page.get_by_label("Ended").select_option(label="finished")
        page.get_by_label("Called tool").select_option(EVIL)
        page.get_by_role("searchbox").fill("THE RESULT <script>")
        expect(page.locator("#count")).to_have_text("8 of 16 rollouts")
        page.locator("#table tbody button").first.click()
        assert page.locator("details.call[open]").count() == 1
        assert page.evaluate("window.hacked") is None
        assert seen.messages == []


def test_the_table_sorts_by_a_column_and_by_presets(page: Page) -> None:
    for descending in (True, False):
        page.locator("th[data-key=total] button").click()
        assert totals(page) == sorted(totals(page), reverse=descending)
    for preset, descending in (("highest", True), ("lowest", False)):
        choose_preset(page, preset)
        assert totals(page) == sorted(totals(page), reverse=descending)
    choose_preset(page, "disagreement")
    found = [float(text) for text in cells(page, 8) if text != "–"]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]
    choose_preset(page, "failures")
    expect(page.locator("#count")).not_to_have_text(f"{NUM_ROLLOUTS} of {NUM_ROLLOUTS} rollouts")
    assert set(cells(page, 3)) == {"timeout"}
    steps = [int(step) for step in cells(page, 1)]
    assert steps == sorted(steps, reverse=True)


def test_only_a_run_of_episodes_has_their_filters(page: Page) -> None:
    assert page.locator("[name=stop], [name=tool]").count() == 0


def test_rows_are_filtered_by_step_by_component_and_by_text(page: Page) -> None:
    page.locator("[name=first]").fill("2")
    page.locator("[name=last]").fill("3")
    expect(page.locator("#table tbody tr")).to_have_count(16)
    assert set(cells(page, 1)) == {"2", "3"}
    page.locator("[name=component]").select_option(label="correct")
    page.locator("[name=least]").fill("0.5")
    expect(page.locator("#count")).not_to_have_text(f"16 of {NUM_ROLLOUTS} rollouts")
    assert {text.strip() for text in cells(page, 5)} == {"1"}
    page.locator("[type=reset]").click()
    expect(page.locator("#table tbody tr")).to_have_count(NUM_ROLLOUTS)
    page.get_by_role("searchbox").fill("no such text")
    expect(page.locator("#count")).to_have_text(f"0 of {NUM_ROLLOUTS} rollouts")


def test_the_keyboard_opens_walks_and_closes_a_rollout(page: Page) -> None:
    first = page.locator("#table tbody button").first
    first.focus()
    page.keyboard.press("Enter")
    opened_first = heading(page).inner_text()
    page.keyboard.press("ArrowRight")
    expect(heading(page)).not_to_have_text(opened_first)
    page.keyboard.press("ArrowLeft")
    expect(heading(page)).to_have_text(opened_first)
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    expect(first).to_be_focused()


def test_a_rollout_shows_all_that_was_stored(page: Page) -> None:
    page.get_by_role("searchbox").fill("5_0_2")
    expect(page.locator("#table tbody tr")).to_have_count(1)
    page.locator("#table tbody button").first.click()
    text = page.get_by_role("dialog").inner_text()
    for expected in ("What is 3 times 0?", "Advantage", "brevity said", "−0.5", '"answer": "6"', "same prompt"):
        assert expected in text
    assert page.locator(".siblings button").count() == 4


def test_a_finding_and_an_address_lead_to_a_rollout(browser: Browser, report: Path, page: Page) -> None:
    page.get_by_role("link", name="4_1_2").click()
    expect(heading(page)).to_have_text("Rollout 4_1_2")
    with opened(browser, report, at="#rollout/2_0_1") as other:
        expect(heading(other.page)).to_have_text("Rollout 2_0_1")


def test_arrow_keys_read_a_chart_and_its_legend_hides_a_line(page: Page) -> None:
    chart = page.locator(".chart", has_text="Effective weights")
    chart.locator("> svg").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "step 2" in chart.locator(".tip").inner_text()
    assert "brevity: −0.5" in chart.locator(".tip").inner_text()
    lines = chart.locator("> svg polyline").count()
    chart.get_by_role("button", name="brevity").click()
    assert chart.locator("> svg polyline").count() == lines - 1

"""`report.html` in a real Chromium: it draws, answers to pointer and keyboard, and asks for and runs nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from agent_tunix.tracking.report import write_report
from tests.chromium import CHROMIUM, OPTIONS, needs_chromium
from tests.tracking.report.support import plain_response, write_run

pytestmark = needs_chromium

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
UNFILTERED = f"{NUM_ROLLOUTS} of {NUM_ROLLOUTS} rollouts"


@dataclass
class Seen:
    """A page, and what happened in it.

    Attributes:
        page: The page.
        messages: Of its console, and uncaught errors.
        requests: Addresses it asked for.
    """

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
    return write_report(run, root)


@pytest.fixture(scope="module")
def odd_reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("odd")
    runs = {
        "no steps": write_run(base / "none", 0),
        "one step": write_run(base / "one", 1, ["only"]),
        "nothing scored": write_run(base / "failed", 3, unscored_share=1.0),
        "twelve components": write_run(base / "twelve", 4, [f"a_long_component_name_{n}" for n in range(12)]),
    }
    return {name: write_report(run, run.root) for name, run in runs.items()}


def open_page(browser: Browser, path: Path, width: int = 1280, scheme: str = "light") -> Iterator[Seen]:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if scheme == "dark" else "light"
    )
    page = context.new_page()
    seen = Seen(page)
    page.on("console", lambda message: seen.messages.append(message.text))
    page.on("pageerror", lambda error: seen.messages.append(str(error)))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.goto(path.as_uri())
    # Charts are drawn as they come into view.
    page.evaluate("document.querySelectorAll('.chart').forEach((figure) => figure.redraw())")
    yield seen
    context.close()


@pytest.fixture
def seen(browser: Browser, report: Path) -> Iterator[Seen]:
    yield from open_page(browser, report)


def rows_of(page: Page) -> Locator:
    return page.locator("#table tbody tr")


def cells(page: Page, column: int) -> list[str]:
    return page.locator(f"#table tbody tr td:nth-child({column})").all_inner_texts()


def totals(page: Page) -> list[float]:
    """Of the rows that have one."""
    found = [text.replace("−", "-") for text in cells(page, 3)]
    return [float(text) for text in found if text.lstrip("-")[:1].isdigit()]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_opens_in_silence_asks_for_nothing_and_is_no_wider_than_the_screen(
    browser: Browser, report: Path, width: int, scheme: str
) -> None:
    for seen in open_page(browser, report, width, scheme):
        seen.page.locator("#table tbody button").first.click()
        assert seen.page.evaluate("document.documentElement.scrollWidth") == width
        assert seen.page.evaluate("document.getElementById('rollout').scrollWidth") <= width
        assert seen.messages == []
        assert [url for url in seen.requests if not url.startswith("data:")] == [report.as_uri()]


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["no steps", "one step", "nothing scored", "twelve components"])
def test_unusual_runs_open_in_silence(browser: Browser, odd_reports: dict[str, Path], name: str, width: int) -> None:
    for seen in open_page(browser, odd_reports[name], width):
        assert seen.messages == []
        assert seen.page.evaluate("document.documentElement.scrollWidth") == width
        assert seen.page.locator("#count").inner_text()


def test_every_chart_has_something_drawn_and_says_what(seen: Seen) -> None:
    charts = seen.page.locator(".chart > svg")
    assert charts.count() > 15
    for number in range(charts.count()):
        chart = charts.nth(number)
        assert chart.locator("polyline, polygon, rect").count()
        assert (chart.get_attribute("aria-label") or "").count("undefined") == 0


def test_what_a_completion_a_name_or_a_finding_says_does_not_run(seen: Seen) -> None:
    page = seen.page
    page.get_by_role("searchbox").fill("onerror=window")
    expect(rows_of(page)).to_have_count(6)
    page.locator("#table tbody button").first.click()
    assert page.locator("#response").inner_text() == EVIL
    assert page.get_by_text(EVIL_NAME, exact=True).count()
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main svg[onload], dialog img, dialog script, dialog svg").count() == 0
    assert seen.messages == []


def test_even_markup_that_got_in_could_not_run(seen: Seen) -> None:
    """The page's policy alone stops a script and a request that some defect would let in."""
    markup = EVIL.partition("</script><!")[0]
    seen.page.evaluate("(html) => { document.body.insertAdjacentHTML('beforeend', html); }", markup)
    add_script = "() => document.body.append(Object.assign(document.createElement('script'), {text: 'hacked=1'}))"
    seen.page.evaluate(add_script)
    seen.page.wait_for_timeout(100)
    assert seen.page.evaluate("window.hacked") is None
    assert any("Content Security Policy" in message for message in seen.messages)


def test_the_table_sorts_by_a_column_and_back(seen: Seen) -> None:
    page = seen.page
    page.locator("th[data-key=total] button").click()
    assert page.locator("th[aria-sort=descending]").inner_text().startswith("Total")
    assert totals(page) == sorted(totals(page), reverse=True)
    page.locator("th[data-key=total] button").click()
    assert totals(page) == sorted(totals(page))


@pytest.mark.parametrize(("preset", "column", "descending"), [("highest", 3, True), ("lowest", 3, False)])
def test_presets_of_reward(seen: Seen, preset: str, column: int, descending: bool) -> None:
    seen.page.locator("[name=preset]").select_option(preset)
    assert totals(seen.page) == sorted(totals(seen.page), reverse=descending)


def test_the_preset_of_failures_shows_them_alone_newest_first(seen: Seen) -> None:
    seen.page.locator("[name=preset]").select_option("failures")
    expect(seen.page.locator("#count")).not_to_have_text(UNFILTERED)
    assert set(cells(seen.page, 3)) == {"timeout"}
    steps = [int(step) for step in cells(seen.page, 1)]
    assert steps == sorted(steps, reverse=True)


def test_the_preset_of_disagreement_puts_the_biggest_first(seen: Seen) -> None:
    seen.page.locator("[name=preset]").select_option("disagreement")
    found = [float(text) for text in cells(seen.page, 8) if text != "–"]
    assert found == sorted(found, reverse=True)
    assert found[0] > found[-1]


def test_filters_by_step_and_by_component_and_reset(seen: Seen) -> None:
    page = seen.page
    page.locator("[name=first]").fill("2")
    page.locator("[name=last]").fill("3")
    expect(rows_of(page)).to_have_count(16)
    assert set(cells(page, 1)) == {"2", "3"}
    page.locator("[name=component]").select_option(label="correct")
    page.locator("[name=least]").fill("0.5")
    expect(page.locator("#count")).not_to_have_text(f"16 of {NUM_ROLLOUTS} rollouts")
    assert {text.strip() for text in cells(page, 5)} == {"1"}
    page.locator("[type=reset]").click()
    expect(rows_of(page)).to_have_count(NUM_ROLLOUTS)


def test_a_search_without_a_hit_says_so(seen: Seen) -> None:
    seen.page.get_by_role("searchbox").fill("no such text")
    expect(seen.page.locator("#count")).to_have_text(f"0 of {NUM_ROLLOUTS} rollouts")


def test_the_keyboard_opens_walks_and_closes_a_rollout(seen: Seen) -> None:
    page = seen.page
    first = page.locator("#table tbody button").first
    first.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    opened = dialog.get_by_role("heading", level=2).inner_text()
    page.keyboard.press("ArrowRight")
    assert dialog.get_by_role("heading", level=2).inner_text() != opened
    page.keyboard.press("ArrowLeft")
    assert dialog.get_by_role("heading", level=2).inner_text() == opened
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert first.evaluate("(button) => button === document.activeElement")


def test_a_rollout_shows_all_that_was_stored(seen: Seen) -> None:
    page = seen.page
    page.get_by_role("searchbox").fill("5_0_2")
    expect(rows_of(page)).to_have_count(1)
    page.locator("#table tbody button").first.click()
    text = page.get_by_role("dialog").inner_text()
    for expected in ("What is 3 times 0?", "Advantage", "brevity said", "−0.5", '"answer": "6"', "same prompt"):
        assert expected in text
    assert page.locator(".siblings button").count() == 4


def test_a_finding_leads_to_its_rollout(seen: Seen) -> None:
    seen.page.get_by_role("link", name="4_1_2").click()
    assert seen.page.get_by_role("dialog").get_by_role("heading", level=2).inner_text() == "Rollout 4_1_2"


def test_an_address_with_a_rollout_opens_it(browser: Browser, report: Path) -> None:
    page = browser.new_page()
    page.goto(f"{report.as_uri()}#rollout/2_0_1")
    assert page.get_by_role("dialog").get_by_role("heading", level=2).inner_text() == "Rollout 2_0_1"
    page.close()


def test_arrow_keys_read_a_chart_and_its_legend_hides_a_line(seen: Seen) -> None:
    page = seen.page
    chart = page.locator(".chart", has_text="Effective weights")
    chart.locator("> svg").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "step 2" in chart.locator(".tip").inner_text()
    assert "brevity: −0.5" in chart.locator(".tip").inner_text()
    lines = chart.locator("> svg polyline").count()
    chart.get_by_role("button", name="brevity").click()
    assert chart.locator("> svg polyline").count() == lines - 1

"""Whoever sees little, or nothing, can use the pages: contrast, names of controls, headings, and titles."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.service.inspector.support import Seen, looking, needs_chromium, serving
from tests.service.support import Server
from tests.tracking.report.support import write_run

pytestmark = needs_chromium

PAGES = ("", "/rollouts?step=2&q=reasoning", "/steps/2/groups/0", "/compare?step=1&other=3", "/nothing")
FINDINGS = [
    {"name": "dead_groups", "severity": severity, "step": 2, "summary": "So it is.", "evidence": {"share": 0.5},
     "rollout_ids": ["2_0_1"], "edits": ["seed=1"], "subject": "correct"}
    for severity in ("error", "warning", "info")
]  # fmt: skip

# Text and what lies behind it, mixed down to plain colours; WCAG 2.2's ratio, which is to be 4.5, or 3 where it is large.
LOW_CONTRAST = """
() => {
  const pen = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data];
  };
  const over = (top, below) => [0, 1, 2].map((i) => (top[i] * top[3] + below[i] * (255 - top[3])) / 255).concat(255);
  const behind = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) layers.push(rgba(getComputedStyle(one).backgroundColor));
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 255]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const ground = behind(element);
    const ink = element.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const [a, b] = [light(over(rgba(ink), ground)), light(ground)].sort((x, y) => y - x);
    const isLarge = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (isLarge ? 3 : 4.5)) found.push(`${ratio.toFixed(2)} ${element.tagName}.${element.className}: ${walker.currentNode.textContent.trim().slice(0, 40)}`);
  }
  return [...new Set(found)];
}
"""

NAMELESS = """
() => [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary, [role=region], svg[role=img]")]
  .filter((one) => one.checkVisibility() && one.getAttribute("aria-hidden") !== "true")
  .filter((one) => !(one.labels?.length || one.getAttribute("aria-label") || one.textContent.trim() || document.getElementById(one.getAttribute("aria-labelledby"))?.textContent.trim()))
  .map((one) => one.outerHTML.slice(0, 120))
"""

HEADINGS = "() => [...document.querySelectorAll('h1, h2, h3, h4')].filter((one) => one.checkVisibility()).map((one) => Number(one.tagName[1]))"
REPEATED_IDS = (
    "() => [...document.querySelectorAll('[id]')].map((one) => one.id).filter((id, at, all) => all.indexOf(id) !== at)"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("inspector")
    runs: Path = directory / "runs"
    runs.mkdir()
    write_run(runs / "one", 3, unscored_share=0.3, findings=FINDINGS)
    with serving(directory, runs) as server:
        yield server


def check(seen: Seen, where: str) -> None:
    page = seen.page
    page.locator("details").evaluate_all("(all) => all.forEach((one) => { one.open = true; })")
    assert page.evaluate(LOW_CONTRAST) == [], where
    assert page.evaluate(NAMELESS) == [], where
    assert page.evaluate(REPEATED_IDS) == [], where
    levels = page.evaluate(HEADINGS)
    assert levels[0] == 1, where
    assert levels.count(1) == 1, where
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False)), (where, levels)
    assert page.title().endswith("· agent_tunix"), where
    assert page.evaluate("document.documentElement.lang") == "en", where


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

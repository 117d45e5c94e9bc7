"""Reward functions in a real Chromium: uploaded, edited, tried, replayed on a run and saved, with hand and keys."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from agent_tunix.service import ReplayLimits, ServiceSettings, TryLimits
from tests.chromium import needs_chromium
from tests.service.inspector.support import EVIL, Seen, looking
from tests.service.replay_support import DOUBLED, POLITENESS, G, saved, write_run
from tests.service.support import Server, new_name, serving

pytestmark = [needs_chromium, pytest.mark.slow]

BEFORE, AFTER = (source.decode().splitlines()[1] for source in (POLITENESS, DOUBLED))
HOSTILE = f'"""{EVIL}"""\n\n\ndef reward(completions, **kwargs):\n    raise ValueError({EVIL!r})\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("service")
    runs = directory / "runs"
    write_run(runs / "polite", num_steps=2, source=saved(POLITENESS))
    tries, replays = TryLimits(timeout_s=60, total_timeout_s=300), ReplayLimits(timeout_s=60, total_timeout_s=300)
    with serving(directory, ServiceSettings(runs=(runs,), tries=tries, replays=replays)) as server:
        yield server


@pytest.fixture
def page(seen: Seen, server: Server) -> Page:
    """The page of a new function."""
    open_new(seen, server)
    return seen.page


def open_new(seen: Seen, server: Server, source: bytes = POLITENESS) -> None:
    alice = server.store.keys.authenticate(server.secret)
    made = server.store.reward_functions.create(alice, new_name(), source, "trl")
    seen.go(f"/functions/{made.id}")


def source_of(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Source")


def upload(page: Page, file: Path, name: str) -> None:
    page.get_by_role("textbox", name="Name").fill(name)
    page.get_by_label("File").set_input_files(file)
    page.get_by_role("button", name="Upload").click()


def choose_run(page: Page) -> None:
    page.get_by_role("combobox", name="Run").select_option(index=1)


def test_a_function_is_uploaded_tried_replayed_with_a_change_and_saved(seen: Seen, tmp_path: Path) -> None:
    page, name = seen.page, new_name()
    (tmp_path / "bad.py").write_text("def reward(completions:\n")
    (tmp_path / "good.py").write_bytes(POLITENESS)
    page.get_by_role("link", name="Reward functions").click()
    page.wait_for_url("**/functions")  # whole: without functions the form is open
    if not page.get_by_label("File").is_visible():
        page.get_by_text("Upload one", exact=True).click()
    upload(page, tmp_path / "bad.py", name)
    expect(page.get_by_role("alert")).to_contain_text("line 1")
    seen.messages.clear()  # Chromium tells of the 400
    upload(page, tmp_path / "good.py", name)
    page.wait_for_url(re.compile(r"/functions/rf_"))
    expect(page.get_by_role("status").filter(has_text="Saved as version 1")).to_be_visible()

    page.get_by_label("Completion 1").fill("please")
    page.get_by_role("button", name="Try", exact=True).click()
    expect(page.locator("#tried td.number")).to_have_text(["0.25"])

    source_of(page).fill(DOUBLED.decode())
    expect(page.locator("#changed")).to_have_text("Changed, not saved.")
    expect(page.locator("#tried")).to_have_class(re.compile("stale"))
    page.get_by_role("button", name="Try", exact=True).click()
    expect(page.locator("#tried td.number")).to_have_text(["0.5"])

    choose_run(page)
    page.get_by_role("button", name="Replay", exact=True).click()
    replayed = page.locator("#replayed")
    expect(replayed.get_by_role("heading", name=f"{2 * 3 * G} completions of 2 steps")).to_be_visible()
    expect(replayed).to_contain_text("0.375 → 0.75")
    expect(replayed.locator("del")).to_have_text([BEFORE])
    expect(replayed.locator("ins")).to_have_text([AFTER])
    replayed.get_by_role("button", name="Save as the next version").click()

    page.wait_for_url(re.compile("new=1"))
    expect(page.get_by_role("heading", name=f"{name} version 2")).to_be_visible()
    expect(source_of(page)).to_have_value(DOUBLED.decode())
    page.get_by_role("link", name="Reward functions").first.click()
    versions = page.locator("tr", has=page.get_by_role("link", name=name, exact=True)).locator("td").first
    expect(versions).to_have_text("2")
    seen.assert_quiet()


def test_a_difference_is_withdrawn_when_the_source_changes(page: Page, seen: Seen) -> None:
    source_of(page).fill(DOUBLED.decode())
    page.get_by_role("button", name="Show the difference").click()
    save = page.get_by_role("button", name="Save as the next version")
    expect(save).to_be_visible()
    source_of(page).press_sequentially(" ")
    expect(save).to_have_count(0)
    expect(page.locator("#review")).to_contain_text("show the difference again")
    page.get_by_role("button", name="Show the difference").click()
    expect(save).to_be_visible()
    seen.assert_quiet()


def test_errors_stand_beside_the_form_they_belong_to(page: Page, seen: Seen) -> None:
    source_of(page).fill("def reward(")
    page.get_by_label("Completion 1").fill("x")
    for button, into in (("Try", "tried"), ("Replay", "replayed"), ("Show the difference", "review")):
        page.get_by_role("button", name=button, exact=True).click()
        expect(page.locator(f"#{into}").get_by_role("alert")).to_contain_text("line 1")
    expect(source_of(page)).to_have_value("def reward(")
    seen.messages.clear()  # Chromium tells of the 400s
    seen.assert_quiet()


def test_tab_indents_and_after_escape_leaves(page: Page) -> None:
    source = source_of(page)
    source.fill("if x:\ny")
    source.press("Control+End")
    source.press("Home")
    source.press("Tab")
    expect(source).to_have_value("if x:\n    y")
    source.press("Shift+Tab")
    expect(source).to_have_value("if x:\ny")
    source.press("Control+a")
    source.press("Tab")
    expect(source).to_have_value("    if x:\n    y")
    source.press("Control+z")
    expect(source).to_have_value("if x:\ny")
    source.press("Escape")
    source.press("Tab")
    expect(source).not_to_be_focused()
    expect(source).to_have_value("if x:\ny")


def test_the_source_is_reached_by_a_key_and_every_control_by_tab(page: Page) -> None:
    page.locator("main").focus()
    page.keyboard.press("e")
    expect(source_of(page)).to_be_focused()
    page.keyboard.press("Escape")
    reached = []
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.name || document.activeElement.innerText"))
    assert {"Try", "Replay", "Show the difference", "run", "against", "completion"} <= set(reached)


def test_a_change_is_not_lost_without_a_question(page: Page) -> None:
    source_of(page).press_sequentially("#")
    with page.expect_event("dialog") as asked:
        page.evaluate("setTimeout(() => location.reload())")
    assert asked.value.type == "beforeunload"


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_every_page_is_readable_and_planted_markup_does_nothing(
    browser: Browser, server: Server, width: int, scheme: str
) -> None:
    with looking(browser, server, width, scheme) as seen:
        page = seen.page
        seen.log_in(server.secret)
        seen.go("/functions")
        seen.assert_readable()
        seen.assert_fits()
        open_new(seen, server, HOSTILE.encode())
        expect(source_of(page)).to_have_value(HOSTILE)
        source_of(page).fill(f"# {EVIL}\n{HOSTILE}")
        for label in ("Prompt", "Reference", "Completion 1"):
            page.get_by_label(label).fill(EVIL)
        page.get_by_role("button", name="Try", exact=True).click()
        expect(page.locator("#tried .said")).to_contain_text("<script>window.hacked=1</script>")
        choose_run(page)
        page.get_by_label("to step").fill("1")
        page.get_by_role("button", name="Replay", exact=True).click()
        expect(page.locator("#replayed .outcomes")).to_contain_text("</textarea>")
        expect(page.locator("#replayed ins")).to_contain_text("<script>")
        seen.assert_readable()
        seen.assert_fits()
        seen.assert_quiet()


def test_two_clicks_save_one_version(page: Page, server: Server) -> None:
    name = page.get_by_role("navigation", name="Where this is").get_by_role("link").nth(1).inner_text()
    source_of(page).fill(DOUBLED.decode())
    page.get_by_role("button", name="Show the difference").click()
    page.get_by_role("button", name="Save as the next version").evaluate("(save) => { save.click(); save.click(); }")
    page.wait_for_url(re.compile("new=1"))
    assert [one.version for one in server.store.reward_functions.versions(name).data] == [2, 1]

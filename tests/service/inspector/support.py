"""Browsers and programs that look at the inspector of a real server."""

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Dialog, Page

from agent_tunix.service import ServiceSettings
from tests.service.support import Server, serving

EVIL = (
    "<script>window.hacked=1</script><img src=https://example.invalid/x onerror=window.hacked=1></textarea></pre>"
    "<svg onload=window.hacked=1><style>*{display:none}</style><!--"
)
PATIENT_MS = 120_000
QUESTIONS = Path(__file__).with_name("readable.js").read_text(encoding="utf-8")
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@dataclass(frozen=True)
class Visitor:
    """A client with the cookie and the token of a session; the token is "" without one."""

    client: httpx.Client
    csrf: str

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.client.get(path, **options)

    def post(self, path: str, data: dict[str, str] | None = None, **options: Any) -> httpx.Response:
        return self.client.post(path, data={"csrf": self.csrf} | (data or {}), **options)


@contextmanager
def visiting(server: Server, secret: str | None = "") -> Iterator[Visitor]:
    """Log in with a key: alice's for "", nobody's for None."""
    with httpx.Client(base_url=server.url, headers=BROWSER, timeout=60) as client:
        csrf = ""
        if secret is not None:
            answer = client.post("/login", data={"key": secret or server.secret})
            assert answer.status_code == 303, answer.text
            found = re.search(r'<meta name="csrf" content="([^"]+)">', client.get("/runs").text)
            assert found is not None
            csrf = found[1]
        yield Visitor(client, csrf)


@contextmanager
def showing(directory: Path, runs: Path) -> Iterator[Server]:
    """A server with a store of its own, and with the runs of a directory."""
    with serving(directory, ServiceSettings(runs=(runs,))) as server:
        yield server


@dataclass
class Seen:
    """A tab, the messages of its console and policy, and the addresses that it asked for."""

    page: Page
    url: str
    has_scripts: bool = True
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def dismiss(self, dialog: Dialog) -> None:
        """A planted script may open one."""
        self.messages.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def go(self, path: str) -> None:
        self.page.goto(self.url + path)

    def log_in(self, secret: str) -> None:
        if self.has_scripts:
            with self.page.expect_event("requestfinished", lambda request: request.url.endswith("/login/status")):
                self.go("/login")
        else:
            self.go("/login")
        self.page.get_by_label("API key").fill(secret)
        self.page.get_by_role("button", name="Log in").click()
        self.page.get_by_role("button", name="Log out").wait_for()
        self.page.wait_for_load_state()  # with its style: a button may be there before

    def assert_readable(self) -> None:
        """With all its details open, the page has contrast, names for controls and headings in order."""
        page = self.page
        page.locator("details").evaluate_all("(all) => all.forEach((one) => { one.open = true; })")
        for question in ("lowContrast", "nameless", "repeatedIds"):
            assert page.evaluate(f"({QUESTIONS}).{question}()") == [], (question, page.url)
        levels = page.evaluate(f"({QUESTIONS}).headings()")
        assert (levels[0], levels.count(1)) == (1, 1), page.url
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), (page.url, levels)
        assert page.title().endswith("· agent_tunix"), page.url
        assert page.evaluate("document.documentElement.lang") == "en", page.url

    def assert_fits(self) -> None:
        """The page is no wider than the window."""
        assert self.page.viewport_size is not None
        width = self.page.evaluate("document.documentElement.scrollWidth")
        assert width <= self.page.viewport_size["width"], (self.page.url, width)

    def assert_quiet(self) -> None:
        """Nothing was refused or went wrong, nothing planted ran, and no other address was asked for."""
        assert self.messages == [], self.messages
        assert self.page.evaluate("window.hacked") is None
        assert [url for url in self.requests if not url.startswith((self.url, "data:"))] == []


@contextmanager
def looking(
    browser: Browser, server: Server, width: int = 1280, scheme: str = "light", *, scripts: bool = True
) -> Iterator[Seen]:
    """Open a tab in a window of some width; nobody is logged in yet."""
    context = browser.new_context(
        viewport={"width": width, "height": 900},
        color_scheme="dark" if scheme == "dark" else "light",
        java_script_enabled=scripts,
    )
    context.set_default_timeout(PATIENT_MS)
    context.add_init_script(
        "document.addEventListener('securitypolicyviolation', (e) => console.error('refused', e.violatedDirective));"
        # Pages that follow a run pause for seconds between their questions.
        "{ const wait = setTimeout; window.setTimeout = (call, ms) => wait(call, ms / 20); }"
    )
    page = context.new_page()
    seen = Seen(page, server.url, scripts)
    page.on("console", lambda message: seen.messages.append(message.text))
    page.on("pageerror", lambda error: seen.messages.append(str(error)))
    page.on("dialog", seen.dismiss)
    page.on("request", lambda request: seen.requests.append(request.url))
    yield seen
    context.close()

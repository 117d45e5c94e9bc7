"""Screenshots for the docs: trains for a few steps and opens the run in headless Chromium.

    python scripts/make_screenshots.py [report | inspector] [--run RUN]

Writes docs/images/report_{desktop,phone}_{light,dark}.png, report_rollout.png and, from a second run,
report_episode.png; and for the inspector, from a server of its own, docs/images/inspector/*_{1280,390}.png. Each is
below 300 KB. Needs the extra `dev`, and chromium, chromium-browser or google-chrome on PATH.
"""

import argparse
import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from agent_tunix.tracking.report import write_report
from agent_tunix.tracking.rollouts.pages import RolloutPages
from agent_tunix.tracking.stored_run import StoredRun

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LARGEST_BYTES = 300_000
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
           "--disable-component-update", "--disable-sync"]  # fmt: skip
SIZES = {"desktop": (1280, 1500), "phone": (390, 1250)}
WIDTHS = {1280: 1000, 390: 1000}  # width → height of the inspector's screenshots


def main() -> None:
    """Make the requested screenshots."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", nargs="?", choices=["report", "inspector"], help="Default: both.")
    parser.add_argument("--run", type=Path, help="A run to show; default: a new one of 40 steps.")
    given = parser.parse_args()
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        sys.exit(f"one of {', '.join(BROWSERS)} must be on PATH")
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        runs = Path(scratch) / "runs"
        runs.mkdir()
        root = runs / "careful_math"
        if given.run:
            shutil.copytree(given.run, root)
        else:
            train(root, "reward=careful_math", "training.num_batches=40", "training.eval_every_n_steps=10")
        browser = playwright.chromium.launch(executable_path=executable, args=OPTIONS)
        if given.what != "inspector":
            shoot_report(browser, root, Path(scratch))
            shoot_episode(browser, Path(scratch))
        if given.what != "report":
            shoot_inspector(browser, root, Path(scratch))
        browser.close()


def shoot_report(browser: Browser, run: Path, scratch: Path) -> None:
    """Make the screenshots of a run's report."""
    page = write_report(StoredRun(run), scratch / "report")
    IMAGES.mkdir(exist_ok=True)
    for scheme in ("light", "dark"):
        for device, (width, height) in SIZES.items():
            shoot(browser, page, IMAGES / f"report_{device}_{scheme}.png", width, height, scheme)
    shoot(browser, page, IMAGES / "report_rollout.png", 1280, 900, "light", opened=True)


def shoot_episode(browser: Browser, scratch: Path) -> None:
    """Train a few steps with a tool, and make the screenshot of an episode in the report."""
    run = scratch / "calculator"
    train(run, "environment=calculator", "training.num_batches=6", "evaluation.num_samples=16")
    page = write_report(StoredRun(run), scratch / "episodes", plots=False)
    shoot(browser, page, IMAGES / "report_episode.png", 1280, 900, "light", opened=True)


def shoot_inspector(browser: Browser, run: Path, scratch: Path) -> None:
    """Make the screenshots of the inspector: pages of a run, and of a function replayed on it."""
    stored = RolloutPages(run / "rollouts")
    first, last = stored.span() or (1, 1)
    other = next(step for step in range(last, first - 1, -1) if stored.shared_prompts(first, step)[0])
    pages = {
        "run": "",
        "rollouts": f"/rollouts?step={last}&q=answer&sort=-reward",
        "group": f"/steps/{last}/groups/0",
        "compare": f"/compare?step={first}&other={other}",
    }
    images = IMAGES / "inspector"
    images.mkdir(parents=True, exist_ok=True)
    with serving(run.parent, scratch / "home") as (url, secret):
        for width, height in WIDTHS.items():
            tab = browser.new_page(viewport={"width": width, "height": height})
            tab.goto(f"{url}/login")
            tab.get_by_label("API key").fill(secret)
            tab.get_by_role("button", name="Log in").click()
            tab.get_by_role("link", name=run.name).click()
            tab.wait_for_url("**/runs/run_*")
            address = tab.url
            for name, path in pages.items():
                tab.goto(address + path)
                if name == "run":
                    tab.locator("#sections svg polyline").first.wait_for(state="attached")
                tab.wait_for_timeout(500)
                save(tab.screenshot(), images / f"{name}_{width}.png")
            tab.close()


@contextlib.contextmanager
def serving(runs: Path, home: Path) -> Iterator[tuple[str, str]]:
    """Serve a directory of runs, and yield the address and the secret of a key."""
    environment = os.environ | {"AGENT_TUNIX_HOME": str(home)}
    command = str(Path(sys.executable).with_name("agent-tunix"))
    made = subprocess.run(
        [command, "keys", "create", "alice"], env=environment, check=True, capture_output=True, text=True
    )
    secret = next(word for word in made.stdout.split() if word.startswith("vk_"))
    server = subprocess.Popen(
        [command, "serve", "--port", "0", "--runs", str(runs)], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        yield next(word for word in server.stdout.readline().split() if word.startswith("http")), secret
    finally:
        server.terminate()
        server.wait()


def train(root: Path, *overrides: str) -> None:
    """Train a run."""
    command = [
        sys.executable,
        str(ROOT / "run_training.py"),
        *overrides,
        f"hydra.run.dir={root}",
        "tracking.report=false",
    ]
    subprocess.run(command, check=True)


def shoot(
    browser: Browser, page: Path, image: Path, width: int, height: int, scheme: str, *, opened: bool = False
) -> None:
    """Make one screenshot: the top of the page, or with `opened` a rollout."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
    )
    tab = context.new_page()
    tab.goto(page.as_uri())
    # Hides the run's temporary directory on this machine.
    tab.evaluate("document.querySelector('.eyebrow code').textContent = 'outputs/careful_math'")
    if opened:
        tab.locator("[name=preset]").select_option("disagreement")
        for tools in tab.locator("[name=tool]").all():  # of a run of episodes
            tools.select_option(index=1)
        tab.locator("#table tbody button").first.click()
        for call in tab.locator("details.call summary").all():
            call.click()
    tab.wait_for_timeout(500)
    save(tab.screenshot(), image)
    context.close()


def save(png: bytes, image: Path) -> None:
    """Write a picture with at most 256 colours, enough for lines and text."""
    small = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    if len(small.getvalue()) >= LARGEST_BYTES:
        sys.exit(
            f"{image} would be of {len(small.getvalue()):,} bytes; at most {LARGEST_BYTES:,}: show less of the page"
        )
    image.write_bytes(small.getvalue())
    print(f"{image.relative_to(ROOT)}: {image.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

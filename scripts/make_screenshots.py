"""Makes the screenshots of the docs: trains for a few steps, and looks at the report in headless Chromium.

    python scripts/make_screenshots.py [--run RUN]

Writes docs/images/report_{desktop,phone}_{light,dark}.png and docs/images/report_rollout.png, each below 300 KB. Needs
the extra `dev`, and chromium, chromium-browser or google-chrome on PATH.
"""

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from agent_tunix.tracking.report import write_report
from agent_tunix.tracking.stored_run import StoredRun

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
LARGEST_BYTES = 300_000
OPTIONS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
           "--disable-component-update", "--disable-sync"]  # fmt: skip
SIZES = {"desktop": (1280, 1500), "phone": (390, 1250)}


def main() -> None:
    """Make them all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--run", type=Path, help="A run to show; default: a new one of 40 steps.")
    chosen = parser.parse_args().run
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        sys.exit(f"one of {', '.join(BROWSERS)} must be on PATH")
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        page = write_report(StoredRun(chosen or train(Path(scratch) / "run")), Path(scratch) / "report")
        IMAGES.mkdir(exist_ok=True)
        browser = playwright.chromium.launch(executable_path=executable, args=OPTIONS)
        for scheme in ("light", "dark"):
            for device, (width, height) in SIZES.items():
                shoot(browser, page, IMAGES / f"report_{device}_{scheme}.png", width, height, scheme)
        shoot(browser, page, IMAGES / "report_rollout.png", 1280, 900, "light", opened=True)
        browser.close()


def train(root: Path) -> Path:
    """A run of a mixture, and where it lies."""
    overrides = ["reward=careful_math", "training.num_batches=40", "training.eval_every_n_steps=10"]
    command = [
        sys.executable,
        str(ROOT / "run_training.py"),
        *overrides,
        f"hydra.run.dir={root}",
        "tracking.report=false",
    ]
    subprocess.run(command, check=True)
    return root


def shoot(
    browser: Browser, page: Path, image: Path, width: int, height: int, scheme: str, *, opened: bool = False
) -> None:
    """One screenshot, of the top of the page or of a rollout that was opened."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if scheme == "dark" else "light"
    )
    tab = context.new_page()
    tab.goto(page.as_uri())
    # The directory of the run says more about this machine than about the report.
    tab.evaluate("document.querySelector('.eyebrow code').textContent = 'outputs/careful_math'")
    if opened:
        tab.locator("[name=preset]").select_option("disagreement")
        tab.locator("#table tbody button").first.click()
    tab.wait_for_timeout(500)
    save(tab.screenshot(), image)
    context.close()


def save(png: bytes, image: Path) -> None:
    """Write a picture with at most 256 colours, which a page of lines and text does not miss."""
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

"""Photograph the explorer's views for docs/figures; needs a Chromium, so it is run by hand and the pictures are kept.

python docs/generate/explorer_pictures.py [--store results/paper]
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

FIGURES = Path(__file__).resolve().parents[1] / "figures"
WIDE, NARROW = {"width": 1440, "height": 900}, {"width": 390, "height": 844}
STEPS = "s3-200.s5-210.s7-220.s9-230.s11-240.o5-211.s15-250"
# of each picture: address, what it waits for, size of the window, colours
SHOTS = {
    "fit": ("fit?target=0.9&embed_dim=48&state_dim=12", "[aria-label='Least sizes'] tr", WIDE, "light"),
    "runs": ("runs", "[aria-label=Runs] tbody tr", WIDE, "light"),
    "inside": (f"inside?steps={STEPS}&ask=5", "#answer", WIDE, "light"),
    "architectures": ("architectures", "text=Recall above that of", WIDE, "light"),
    "paper": ("paper?open=layers", "figcaption:has-text('fig-5')", WIDE, "light"),
    "narrow": ("fit?target=0.9&embed_dim=48&state_dim=12", "[aria-label='Least sizes'] tr", NARROW, "dark"),
}
DRAWN = """() => [...document.querySelectorAll('.chart.waiting')].every((node) => !node.offsetParent)
  && [...document.images].every((image) => image.complete)"""


def main() -> None:
    """Serve the store, and write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", default="results/paper")
    command = [sys.executable, "-m", "recallscope.cli.main", "explore", "--no-browser"]
    server = subprocess.Popen([*command, parser.parse_args().store], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout
        address = server.stdout.readline().strip()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            for name, (place, ready, size, scheme) in SHOTS.items():
                page = browser.new_page(viewport=size, color_scheme=scheme)
                page.set_default_timeout(120_000)
                page.goto(f"{address}#{place}")
                page.wait_for_selector(ready)
                page.wait_for_function(DRAWN)
                page.screenshot(path=FIGURES / f"explore-{name}.png")
                page.close()
            browser.close()
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()

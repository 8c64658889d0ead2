"""The page itself: small, ours, and asking nobody else."""

import re
from pathlib import Path

from recallscope.web.server import page_files


def test_scripts_and_styles_are_small_and_load_nothing_from_elsewhere():
    own = page_files()
    assert sum(map(len, own.values())) < 90_000
    for name, data in own.items():
        assert re.findall(rb"https?://|//cdn|@import|innerHTML|eval\(", data) == [], name


def test_every_view_has_a_small_picture_in_the_docs():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "howto" / "explore.md").read_text(encoding="utf-8")
    for view in re.findall(r'href="#(\w+)"', page_files()["index.html"].decode())[1:]:
        assert f"explore-{view}.png" in page
        assert (root / "docs" / "figures" / f"explore-{view}.png").stat().st_size < 300_000

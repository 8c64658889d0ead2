"""A number that a page quotes from another one, `[0.706](PAGE.md)`, is printed there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
QUOTED = re.compile(r"\[([-+]?\d[\d.,]*%?)\]\(([^)#\s]+\.md)[^)]*\)")
PAGES = {page: QUOTED.findall(page.read_text()) for page in (ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md")))}


@pytest.mark.parametrize("page", [page for page in PAGES if PAGES[page]], ids=lambda page: page.name)
def test_quoted_numbers_are_printed_where_they_come_from(page: Path) -> None:
    missing = [
        f"{number} in {source}" for number, source in PAGES[page] if number not in (page.parent / source).read_text()
    ]
    assert not missing


def test_there_are_some() -> None:
    assert {page.name for page, quotes in PAGES.items() if quotes} >= {"README.md", "findings.md"}

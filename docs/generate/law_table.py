"""The table of docs/LAWS.md: `python docs/generate/law_table.py` makes it again. Its words are written in the page."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from law_pages import against_measurements, in_cell

from recallscope.theory.law import LAWS, Law, recommended

PAGE = Path(__file__).resolve().parents[1] / "LAWS.md"
TABLE = re.compile(r"(?<=<!-- laws -->\n).*?(?=<!-- /laws -->)", re.DOTALL)
ROW = re.compile(r"^\| `([^`]+)`[^|]*\|[^|]*\|([^|]*)\|", re.MULTILINE)  # the law, whose recall, in words
HEAD = "| law | predicts recall of | in words | formula, or what is computed | where it makes sense | off by |\n|---|---|---|---|---|---|\n"


def with_table(page: str) -> str:
    """The page with its table made again: a law that has no words yet has the first line of its docstring."""
    words = {name: said.strip() for name, said in ROW.findall(page)}
    return TABLE.sub(lambda _: HEAD + "".join(_row(law, words) for law in LAWS), page)


def with_links(page: str) -> str:
    """Laws in the table lead to their pages, which only the site has."""
    return TABLE.sub(
        lambda table: re.sub(r"^\| `([^`]+)`", r"| [`\1`](laws/\1.md)", table[0], flags=re.MULTILINE), page
    )


def _row(law: Law, words: dict[str, str]) -> str:
    star = " **recommended**" if law.name in recommended().values() else ""
    said = words.get(law.name) or (law.function.__doc__ or "").strip().split("\n")[0]
    domain = law.domain.sentence if law.domain else law.holds
    cells = [f"`{law.name}`{star}", law.about, said, law.summary, domain, _off_by(law)]
    return f"| {' | '.join([cells[0], *map(in_cell, cells[1:])])} |\n"


def _off_by(law: Law) -> str:
    """Over all stored measurements of sizes that the law was compared with."""
    cells = against_measurements(law)
    size = np.abs(cells.errors[cells.compared])
    return f"{size.mean():.3f} (at most {size.max():.3f}, {len(size)} measured)" if len(size) else "not measured"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

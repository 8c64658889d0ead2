"""Small HTML for notebooks: tables and heat maps as strings, with every text escaped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

_DARK_TO_LIGHT = ((0, 32, 77), (65, 77, 107), (124, 123, 120), (188, 175, 111), (255, 234, 70))  # cividis at quarters


def html_table(title: str, facts: Mapping[str, object], note: str = "") -> str:
    """A title, one row per fact, and a note below."""
    rows = "".join(
        f'<tr><th style="text-align:left">{_text(name)}</th><td style="text-align:left">{_text(value)}</td></tr>'
        for name, value in facts.items()
    )
    return f"<b>{_text(title)}</b><table>{rows}</table>{_text(note)}"


def html_rows(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table with a head."""
    head = "".join(f"<th>{_text(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{_text(value)}</td>" for value in row) + "</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def html_heat_map(
    title: str, corner: str, columns: Sequence[object], rows: Sequence[tuple[object, Sequence[float]]]
) -> str:
    """Numbers from 0 to 1 by colour, dark to light, each written in its cell; nothing where there is no number."""
    head = "".join(f"<th>{_text(value)}</th>" for value in columns)
    body = "".join(f"<tr><th>{_text(name)}</th>{''.join(map(_cell, values))}</tr>" for name, values in rows)
    return f"<b>{_text(title)}</b><table><tr><th>{_text(corner)}</th>{head}</tr>{body}</table>"


def _cell(value: float) -> str:
    if value != value:
        return "<td></td>"
    share = 4 * min(max(value, 0.0), 1.0)
    low = min(int(share), 3)
    colour = [
        round(a + (share - low) * (b - a)) for a, b in zip(_DARK_TO_LIGHT[low], _DARK_TO_LIGHT[low + 1], strict=True)
    ]
    ink = "white" if value < 0.55 else "black"
    return f'<td style="background:rgb({",".join(map(str, colour))});color:{ink};text-align:right">{value:.3f}</td>'


def _text(value: object) -> str:
    return escape(f"{value:.4g}" if isinstance(value, float) else str(value))

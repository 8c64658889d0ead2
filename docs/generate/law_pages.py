"""A page and a figure for every law of the catalogue; a new law has its page at the next build."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from docstrings import in_markdown
from matplotlib.figure import Figure

from recallscope.figures.accuracy_panels import shades
from recallscope.figures.style import GUESS, PAGE, figure_style, new_figure, small_picture
from recallscope.runs.store import RunStore
from recallscope.studies.law_table import Measured, against_measurements, in_cell, measured_for
from recallscope.theory.law import DIMENSIONS, LAWS, Law
from recallscope.theory.problem import FIELDS, SIZES, Problem

STORE = RunStore(Path(__file__).resolve().parents[2] / "results" / "paper")
EXAMPLE = {"task": "mqar", "vocab_size": 512, "num_facts": 16}
CORRELATED = {"task": "template_ar", "rho": 1.0}  # for laws of such tasks alone, which take a second a cell
SPARSE = 5
STATES = (4, 8, 16, 32)
WIDTHS = np.arange(8, 97, 4)


def with_links(page: str) -> str:
    """Laws in the first column of the table of LAWS.md lead to their pages, which only the site has."""
    names = "|".join(LAWS.names())
    return re.sub(rf"^\| `({names})`", r"| [`\1`](laws/\1.md)", page, flags=re.MULTILINE)


def law_pages() -> Iterator[tuple[str, str | bytes]]:
    """Path and content of every page and figure; the table of all laws is docs/LAWS.md."""
    for law in LAWS:
        cells = against_measurements(law, STORE)
        picture = small_picture(_figure(law, cells))
        name = f"{law.name}.{'svg' if picture.lstrip().startswith(b'<') else 'png'}"
        yield f"laws/{name}", picture
        yield f"laws/{law.name}.md", _page(law, name, _evidence(cells))


def _page(law: Law, picture: str, evidence: str) -> str:
    about = {
        "Predicts recall of": law.about,
        "Weights": law.weights,
        "Source": in_cell(law.reference or "not stated"),
        "Status": law.status,
        "Holds for": in_cell(law.holds or "not stated"),
        "Domain": in_cell(law.domain.sentence) if law.domain else "no conditions that can be computed",
        "Compared with measurements for": "<br>or ".join(in_cell(one.sentence) for one in law.compared) or "nothing",
        "Needs": ", ".join(f"`{name}`" for name in law.needs),
        "Layers": {
            "printed": "Λ layers count as one with the state Λ N (Thm 4.6)",
            "joint": "Λ layers count as one with the state Λ N, up to the rank D",
            "one": "one layer only",
        }.get(law.layers, law.layers),
    }
    if law.support != law.holds:
        about["Support"] = in_cell(law.support)
    if law.options:
        about["Options"] = ", ".join(f"`{name}={value!r}`" for name, value in law.options.items())
    call = ", ".join(f"{name}={value!r}" for name, value in {**_sizes(law), "embed_dim": 48, "state_dim": 16}.items())
    function = f"{law.function.__module__}.{law.function.__name__}"
    return "\n\n".join(
        [
            f"# {law.name}",
            f"**{law.summary}**",
            "\n".join(["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in about.items())]),
            f"![recall by {law.name}]({picture})",
            f"Left: recall over D and N for {_in_letters(_sizes(law))}; dotted where the answer is extrapolated. "
            f"Right: every run or circuit that is stored with this repository, measured against predicted; hollow "
            f"where the law is extrapolated.",
            evidence,
            "## In its own words",
            f"`{function}`",
            in_markdown(inspect.getdoc(law.function) or ""),
            "## Use it",
            f"```python\nimport recallscope as rs\n\nprint(rs.find_law({law.name!r})({call}))\n```".replace("'", '"'),
        ]
    )


def _sizes(law: Law) -> dict[str, Any]:
    """The example's task, and for what else the law needs the values that most stored runs have."""
    extra = {}
    if more := [name for name in FIELDS if name not in (*DIMENSIONS, "task", "length")]:
        common = Counter(tuple(row.get(name) for name in more) for row in measured_for(law, STORE)).most_common(1)
        extra = dict(zip(more, common[0][0], strict=True)) if common and set(law.needs) - set(DIMENSIONS) else {}
    given = {name: value for name, value in extra.items() if value is not None}
    plain = EXAMPLE["task"] in law.tasks
    example = {name: value for name, value in EXAMPLE.items() if name != "task"} if plain else EXAMPLE | CORRELATED
    return {**example, **given}


def _in_letters(sizes: Mapping[str, Any]) -> str:
    letters = {name: about["letter"].replace("Lambda", "Λ") for name, about in SIZES.items()}
    return ", ".join(f"{letters.get(name, name)} = {value}" for name, value in sizes.items())


def _evidence(cells: Measured) -> str:
    """How far the law is off, where it was compared and beyond."""
    if not len(cells.measured):
        return "No stored measurement is of the models that this law is about."
    lines = [
        "| stored measurements | number | mean of the error's size | largest | mean error |",
        "|---|---|---|---|---|",
    ]
    silent = np.isnan(cells.predicted)
    for name, chosen in (("within what it was compared with", cells.compared), ("beyond", ~cells.compared & ~silent)):
        if chosen.any():
            found = cells.errors[chosen]
            size = np.abs(found)
            lines.append(f"| {name} | {len(found)} | {size.mean():.3f} | {size.max():.3f} | {found.mean():+.3f} |")
    said = f"\n\nIt does not answer for {silent.sum()} of {len(silent)}." if silent.any() else ""
    return (
        "\n".join(lines)
        + said
        + "\n\nThe error is measured minus predicted, one training (a single seed) or circuit each."
    )


def _figure(law: Law, cells: Measured) -> Figure:
    with figure_style():
        figure = new_figure(PAGE, 2.6)
        left, right = figure.subplots(1, 2)
        for state, colour in zip(STATES, shades(len(STATES)), strict=True):
            sizes = _sizes(law)
            widths = WIDTHS[::SPARSE] if "task" in sizes else WIDTHS
            words = {"task": EXAMPLE["task"], **sizes, "embed_dim": widths, "state_dim": state}
            try:
                problem = Problem.from_fields(words)
                with np.errstate(all="ignore"):
                    p, beyond = law(problem), law.extrapolated(problem)
            except ValueError as error:
                left.text(0.5, 0.5, str(error)[:80], transform=left.transAxes, ha="center", fontsize=6)
                break
            left.plot(widths, p, color=colour, linestyle=":", linewidth=1)
            left.plot(widths, np.where(beyond, np.nan, p), color=colour, label=f"N = {state}")
        left.set(xlabel="embedding D", ylabel="recall", ylim=(-0.03, 1.03))
        left.legend(loc="lower right")
        right.plot([0, 1], [0, 1], color=GUESS, linewidth=0.8)
        for chosen, filled in ((~cells.compared, False), (cells.compared, True)):
            face = {} if filled else {"facecolors": "none"}
            right.scatter(
                cells.predicted[chosen], cells.measured[chosen], s=12, linewidths=0.6, color="#0072B2", **face
            )
        right.set(xlabel="predicted", ylabel="measured", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
        return figure

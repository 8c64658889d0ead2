"""The page as files: its scripts in one, and every answer they can ask for. It opens from disk, without a server."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from recallscope.answers import prediction
from recallscope.atomic import write_atomically
from recallscope.faults import finite
from recallscope.paper.experiment import experiments, paper_figures
from recallscope.specs import parse_model
from recallscope.theory.law import find_law
from recallscope.web.fit import FitQuestion, bounds, measured
from recallscope.web.server import answer, options, page_files, plotly_script
from recallscope.web.shelf import Shelf, all_weights, has_torch

MODULES = ("core.js", "charts.js", "fit.js", "runs.js", "inside.js", "zoo.js", "paper.js", "app.js")  # in order of use
MOST_GROUPS, MOST_RUNS = 40, 2000
LAW = "trained-sharing"  # over the groups
VALUES: dict[str, tuple[Any, ...]] = {
    "vocab_size": (128, 512, 2048),
    "num_facts": (8, 16, 32),
    "embed_dim": (8, 12, 16, 24, 32, 40, 48, 56, 64, 80, 96, 128),
    "state_dim": (2, 3, 4, 6, 8, 12, 16, 24, 32, 64),
    "target": (0.9, 0.95, 0.99),
}
TOUR = 110  # facts that are stored one after the other


def write_site(shelf: Shelf, folder: Path, tell: Callable[[str], None] = lambda part: None) -> Iterator[Path]:
    """Write the page, its data, Plotly's script and the figures; existing files of these names are replaced.

    `tell` is called with the part that is made next: it takes minutes for a store of several hundred runs.
    """
    if folder.is_file():
        raise ValueError(f"{folder} is a file, and the page needs a folder of its own. Name a new one.")
    folder.mkdir(parents=True, exist_ok=True)
    own = page_files()
    page = own["index.html"].decode().replace("static/style.css", "style.css")
    scripts = '<script defer src="data.js"></script>\n<script defer src="page.js"></script>'
    page = page.replace('<script type="module" src="static/app.js"></script>', scripts)
    files: dict[str, bytes] = {"index.html": page.encode(), "style.css": own["style.css"], "page.js": bundle(own)}
    pictures = _figures(shelf, tell)
    files |= pictures
    site = _data(shelf, tell) | {"figures": {Path(name).stem: name for name in pictures}}
    data = json.dumps(finite(site), separators=(",", ":"), allow_nan=False)
    files["data.js"] = f"window.RECALLSCOPE_SITE = {data};\n".encode()
    for number in range(len(shelf.stores)):
        files[f"runs-{number}.csv"] = answer(shelf, "runs.csv", {"store": number}).body
    for name, content in files.items():
        write_atomically(folder / name, content)
        yield folder / name
    shutil.copyfile(plotly_script(), folder / "plotly.min.js")
    yield folder / "plotly.min.js"


def bundle(own: dict[str, bytes]) -> bytes:
    """All modules as one classic script: browsers load no modules from disk."""
    parts = ["const modules = {};"]
    for name in MODULES:
        text = own[name].decode()
        text = re.sub(r'^import (\{[^}]*\}) from "\./([\w.]+)";', r'const \1 = modules["\2"];', text, flags=re.M)
        names = re.findall(r"^export (?:const|async function\*?|function) (\w+)", text, flags=re.M)
        text = re.sub(r"^export ", "", text, flags=re.M)
        parts.append(f'modules["{name}"] = (() => {{\n{text}\nreturn {{ {", ".join(names)} }};\n}})();')
    return ("(() => {\n" + "\n".join(parts) + "\n})();\n").encode()


def _data(shelf: Shelf, tell: Callable[[str], None]) -> dict[str, Any]:
    answers: dict[str, Any] = {"options": options(shelf, {}), "claims": answer(shelf, "claims", {})}

    def keep(name: str, **words: Any) -> Any:
        return answers.setdefault(f"{name}?{urlencode(words)}", answer(shelf, name, words))

    for number, store in enumerate(shelf.stores):
        tell(f"runs of {store.root}")
        rows = keep("runs", store=number)
        for run in [row[0] for row in rows["rows"]][:MOST_RUNS]:
            keep("run", store=number, run=run)
        groups = answer(shelf, "groups", {"store": number})[:MOST_GROUPS]
        answers[f"groups?store={number}"] = groups
        tell(f"{len(groups)} groups of runs, and the law on their cells")
        for index in range(len(groups)):
            keep("group", store=number, group=index, law=LAW)
        keep("zoo", store=number)
        keep("zoo_curves", store=number)
        for experiment in experiments():
            tell(f"findings of {experiment.name}")
            keep("findings", store=number, experiment=experiment.name)
    tours = list(_tours(shelf, answers)) if has_torch() else []
    answers["models"] = [one for one in all_weights(shelf, {}) if one["model"] in {tour["model"] for tour in tours}]
    tell("the law over D and N")
    start = {"vocab_size": 512, "num_facts": 16, "embed_dim": 64, "state_dim": 16}
    return {"answers": answers, "inside": tours, "fit": {"start": start, "values": VALUES, "sheets": _sheets(shelf)}}


def _sheets(shelf: Shelf) -> dict[str, Any]:
    """The law over D and N, with all that is said of a cell, for every V and N_f of the copy."""
    sheets = {}
    D, N = VALUES["embed_dim"], VALUES["state_dim"]
    for V, N_f in product(VALUES["vocab_size"], VALUES["num_facts"]):
        asked = FitQuestion(vocab_size=V, num_facts=N_f)
        found = prediction(asked.words | {"embed_dim": D, "state_dim": N}, others=False)
        heads = [row["headline"] for row in found["rows"]]
        law = find_law(heads[0]["law"])
        sheets[f"{V},{N_f}"] = {
            "headlines": heads,
            "summary": law.summary,
            "reference": law.reference,
            "task": found["task"],
            "entries": [parse_model({"kind": asked.kind, "embed_dim": d, "state_dim": n}).state_entries
                        for d, n in product(D, N)],
            "bounds": {target: bounds(asked.model_copy(update={"target": target})) for target in VALUES["target"]},
            "measured": measured(asked, shelf),
        }  # fmt: skip
    return sheets


def _tours(shelf: Shelf, answers: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Facts stored one by one, one overwritten, one forgotten, and more than fit: every state on the way."""
    if not shelf.weights:
        return
    model = "weights:0"
    half = answer(shelf, "memory", {"model": model})["vocab_size"] // 2
    facts = [["store", 1 + 5 * i % (half - 1), half + 11 * i % half] for i in range(TOUR)]
    steps = [*facts[:4], ["overwrite", facts[1][1], half + 7], ["forget", facts[2][1]], *facts[4:]]
    points = sorted({count for count in (*range(9), 16, 32, 64) if count < len(steps)} | {len(steps)})
    for count in points:
        question: dict[str, Any] = {"model": model, "steps": steps[:count]}
        if count:
            question["ask"] = steps[count - 1][1]
        text = json.dumps(question, separators=(",", ":"))
        answers[f"memory {text}"] = answer(shelf, "memory", question)
    yield {"model": model, "steps": steps, "points": points}


def _figures(shelf: Shelf, tell: Callable[[str], None]) -> dict[str, bytes]:
    """Every figure that the first store can draw, by file name; none without matplotlib."""
    found = {}
    for name in paper_figures() if shelf.stores else ():
        tell(f"figure {name}")
        try:
            picture = answer(shelf, "figure", {"store": 0, "name": name})
        except (ModuleNotFoundError, ValueError):
            continue
        found[f"{name}.{'svg' if 'svg' in picture.media_type else 'png'}"] = picture.body
    return found

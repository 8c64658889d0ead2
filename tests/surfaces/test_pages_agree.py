"""docs/glossary.md explains every field that the commands print, and none that they do not; and pages quote each other
rightly: a number with a link, `[0.706](PAGE.md)`, is printed there."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| (`.*?) \|", re.MULTILINE)  # its first column
SECTIONS = {
    part.partition("\n")[0]: {name for row in ROW.findall(part) for name in re.findall("`([^`]+)`", row)}
    for part in GLOSSARY.split("\n## ")[1:]
}
SIZES = ["--vocab-size", 32, "--num-facts", 3, "--embed-dim", 8, "--state-dim", 4]
STEPS = ["--batch-size", 16, "--warmup-steps", 5, "--flat-steps", 40, "--decay-steps", 20, "--eval-size", 40]
SEARCH = ["--model", "linear_mamba", *SIZES[:2], *SIZES[4:], "--target", 0.2, "--max-runs", 2]
RATE = ["--learning-rate", 0.01]
COMMANDS = {
    "predict": [*SIZES],
    "size": ["--target", 0.8, "--vocab-size", 64, "--num-facts", 4],
    "train": [*SIZES, *STEPS, "--out", "one"],
    "measure": ["linear_mamba", *SIZES, *STEPS, *RATE, "--out", "measured", "--compare-with", "measured/store"],
    "capacity": [*SEARCH, *STEPS, *RATE, "--store", "searched"],
    "fit": ["searched", "--bootstrap", 20],
    "inspect": ["one", "--num-sequences", 20, "--out", "look"],
}
# tables with names of their own: fields of specs, names of laws
FREE = {
    "task", "model", "spec", "top_k", "warnings", "left_out", "rows.laws", "rows.extrapolated", "mean_diagonals",
    "rate", "parts",
}  # fmt: skip


def fields(answer: dict) -> set[str]:
    """Names at the top, and one level below."""
    found = set()
    for name, value in answer.items():
        found.add(name)
        inner = value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else value
        if isinstance(inner, dict) and name not in FREE:
            found |= {f"{name}.{part}" for part in inner}
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("asked")


@pytest.mark.parametrize(
    "command", [pytest.param(command, marks=pytest.mark.slow) if command == "size" else command for command in COMMANDS]
)
def test_every_field_is_explained(command, folder, run, monkeypatch):
    monkeypatch.chdir(folder)
    if command == "fit" and not (folder / "searched").exists():
        run("capacity", *COMMANDS["capacity"])
    if command == "inspect" and not (folder / "one").exists():
        run("train", *COMMANDS["train"])
    code, out, err = run(command, *COMMANDS[command], "--json")
    assert code == 0, err
    known = SECTIONS[command] | SECTIONS["Sizes"]
    sizes = {f"{table}.{name}" for table in ("answer", "frontier", "rows") for name in SECTIONS["Sizes"]}
    same = {f"frontier.{name.partition('.')[2]}" for name in known if name.startswith("answer.")}
    printed = fields(json.loads(out))
    assert sorted(printed - known - sizes - same) == []
    if command not in ("size", "measure"):  # what these print depends on the question
        assert sorted(SECTIONS[command] - printed - {name for name in SECTIONS[command] if "." in name}) == []


def test_columns_of_a_store_are_explained():
    from recallscope.runs.store import RunStore
    from recallscope.runs.table import find_runs

    (row,) = find_runs(RunStore(ROOT / "results" / "paper"), limit=1)
    results = list(row)[list(row).index("test_accuracy") :]
    assert {"run", "status", *results} <= SECTIONS["Columns of a store"] | SECTIONS["Sizes"]


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


def test_the_page_on_banks_says_what_the_records_of_its_trainings_say():
    runs = json.loads((ROOT / "results/mechanism/full/bank_start.json").read_text())
    page = (ROOT / "docs/BANKS.md").read_text()
    ends = {start: [run["after"]["recall"] for run in runs if run["start"] == start] for start in ("usual", "bank")}
    assert len(ends["usual"]) == len(ends["bank"]) == 4
    assert {f"{p:.2f}" for p in ends["bank"]} == {"0.87"}
    assert "ended slightly above the law, at 0.87" in page
    low, high = (f"{end(ends['usual']):.2f}" for end in (min, max))
    assert f"accuracies of {low} to {high}." in page

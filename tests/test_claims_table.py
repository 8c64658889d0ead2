"""The table of claims keeps its word: rows are distinct and complete, what they name exists, src/ cites only them."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from recallscope.studies.claims import CLAIMS, Kind, Status, all_labels, all_numbers, claim

ROOT = Path(__file__).resolve().parents[1]

NUMBER = re.compile(
    r"\b(?P<kind>Thm|Lem|Rem|Eq|Alg|Tab|Fig|App|Sec)s?\.?\s+"
    r"(?P<first>(?:[A-L]|\d+)(?:\.\d+)*)(?:[-–](?P<last>(?:[A-L]\.)?\d+(?:\.\d+)*))?(?!\w)"
)
LABEL = re.compile(
    r"`(?P<label>(?:(?:app-)?(?:thm|lem|rem|eq|alg|tab|fig|par|sec|subsec):|app[:-]|eqs-|noisy-attn)[^`\s]*)`"
)
NO_DOT = ("Thm", "Lem", "Rem")
ROW_OF_LABEL = {label: row.key for row in CLAIMS for label in row.labels}
ROW_OF_NUMBER = {number: row.key for row in CLAIMS for number in row.numbers}


def spelled_out(match: re.Match[str]) -> list[str]:
    """'Lem H.2-H.5' is four numbers, 'Eqs. 9-11' three; 'Rem. 4.3' is our 'Rem 4.3'."""
    kind = match["kind"] + ("" if match["kind"] in NO_DOT else ".")
    first, last = match["first"], match["last"]
    if last is None:
        return [f"{kind} {first}"]
    stem, _, low = first.rpartition(".")
    high = last.rpartition(".")[2]
    if not low.isdigit() or int(high) <= int(low):
        return [f"{kind} {first}", f"{kind} {last}"]
    return [f"{kind} {stem + '.' if stem else ''}{n}" for n in range(int(low), int(high) + 1)]


def contains(beside: list[str], label: str) -> bool:
    """An equation with a row of its own may stand beside the theorem or section it is part of."""
    kinds = {claim(key).kind for key in beside if key}
    return claim(ROW_OF_LABEL[label]).kind == "equation" and "equation" not in kinds


def faults(text: str) -> list[str]:
    """Citations of a text that no row has, and labels that stand beside a number of another row."""
    wrong = []
    beside: list[str] = []  # rows of the numbers just before, while only commas and brackets follow
    end, after_label = 0, False
    found = sorted([*NUMBER.finditer(text), *LABEL.finditer(text)], key=lambda match: match.start())
    for match in found:
        if not re.fullmatch(r"(?:[\s,(]|and )*", text[end : match.start()]):
            beside = []
        end = match.end()
        if match.re is NUMBER:
            if after_label:
                beside = []
            after_label = False
            for number in spelled_out(match):
                if number not in ROW_OF_NUMBER:
                    wrong.append(f"{number} is in no row")
                beside.append(ROW_OF_NUMBER.get(number, ""))
        else:
            after_label = True
            label = match["label"]
            if label not in ROW_OF_LABEL:
                wrong.append(f"`{label}` is in no row")
            elif beside and ROW_OF_LABEL[label] not in beside and not contains(beside, label):
                wrong.append(f"`{label}` belongs to {ROW_OF_LABEL[label]}, and is cited beside {', '.join(beside)}")
    return wrong


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Docstrings and every other string: error messages and field descriptions cite the paper as well."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def find(dotted: str) -> Any:
    """The object of a dotted name: the longest module that imports, then attributes."""
    parts = dotted.split(".")
    for cut in range(len(parts), 0, -1):
        name = ".".join(parts[:cut])
        try:
            found = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
                raise  # the module is there, something it needs is not
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(dotted)


def test_keys_numbers_and_labels_are_unique() -> None:
    assert len({row.key for row in CLAIMS}) == len(CLAIMS)
    labels = [label for row in CLAIMS for label in row.labels]
    assert sorted(labels) == sorted(set(labels))
    assert all_labels() == frozenset(labels)
    numbers = [number for row in CLAIMS for number in row.numbers]
    assert sorted(numbers) == sorted(set(numbers))
    assert all_numbers() == frozenset(numbers)


@pytest.mark.parametrize(("kind", "count"), [("Fig.", 20), ("Tab.", 10), ("Alg.", 4), ("Eq.", 15)], ids=str)
def test_nothing_the_paper_counts_is_left_out(kind: str, count: int) -> None:
    """Twenty figures, ten tables, four algorithms, and the equations of the main text."""
    assert {f"{kind} {n}" for n in range(1, count + 1)} <= all_numbers()


def test_every_theorem_lemma_and_remark_has_a_row() -> None:
    """They share one counter per section, so the counts leave no gap."""
    printed = {(kind, n[4:]) for n in all_numbers() for kind in [n[:3]] if kind in NO_DOT}
    counts = {"3": 2, "4": 7, "C": 4, "F": 8, "G": 1, "H": 5}
    assert sorted(n for _, n in printed) == [f"{s}.{n}" for s, most in counts.items() for n in range(1, most + 1)]


def test_every_row_is_well_formed() -> None:
    for row in CLAIMS:
        assert claim(row.key) is row
        assert row.kind in get_args(Kind), row
        assert row.status in get_args(Status), row
        assert row.sentence.endswith("."), row
        assert row.note == "" or row.note.endswith("."), row
        assert (row.status == "todo") == (not row.tests), f"todo means that nothing checks it yet: {row}"
        assert row.tests or not row.functions, f"what is computed is tested: {row}"
        assert row.note or row.status != "departs", f"say what is wrong in print, and what is right: {row}"


def test_the_code_and_tests_that_rows_name_exist() -> None:
    for name in {name for row in CLAIMS for name in row.functions}:
        assert name.startswith("recallscope."), name
        assert find(name) is not None, name
    for path in {path for row in CLAIMS for path in row.tests}:
        assert path.startswith("tests/"), path
        assert (ROOT / path).is_file(), path


def test_an_unknown_key_says_which_are_near() -> None:
    with pytest.raises(KeyError, match=r"thm-4\.2"):
        claim("thm-4.22")


def test_src_cites_only_what_the_table_has() -> None:
    found = [
        f"{path}:{line}: {fault}"
        for path in sorted((ROOT / "src").rglob("*.py"))
        for line, text in texts(path.read_text(encoding="utf-8"))
        for fault in faults(text)
    ]
    assert found == []


def test_the_code_the_notation_page_names_exists() -> None:
    """Such as `theory.laws.unified_law`, or the same with arguments."""
    page = (ROOT / "NOTATION.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:theory|tasks|ops|models|circuits)\.[a-z_.]+)(?:\([^`]*\))?`", page))
    assert named
    for name in sorted(named):
        find(f"recallscope.{name}")


def test_the_notation_page_cites_only_what_the_table_has() -> None:
    assert faults((ROOT / "NOTATION.md").read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "text",
    [
        "Paper: Thm 9.9.", "Paper: Lem. C.7", "see Eq. 99 of the paper", "Alg. 5", "Tab. 11", "Fig. 21",
        "App. Z.1 is not there, App. E.7 neither", "Eqs. 13-16 and Lem H.2-H.7", "`thm:no-such-label`",
        "(`app-eq:no-such-label`)", "Fig. 3 (`fig:scaling-laws-1d-dims`)", "Eq. 13 (`eq:h`)",
        "Thm 4.2, Eq. 14 (`rem:practical-scaling-law`)",
    ],
)  # fmt: skip
def test_a_false_citation_is_caught(text: str) -> None:
    assert faults(text) != []


@pytest.mark.parametrize(
    "text",
    [
        "Paper: Thm 4.2, Eq. 15 (`eq:success-prob-ar-large-Nf`).   Holds for: N_f >> N.",
        "Rem. 4.3 and Rem 4.3, Thm. F.4; Lem H.2–H.5; Eq. 1-3, Eqs. 9–11.",
        "proof of Thm F.2 (`eqs-variance`)",
        "Alg. 1, `alg:mamba`), or stacked (Alg. 3, `app-alg:mamba-layers`)",
        "Sec. 2 (`par:mqar-definition`), Tab. 1 (`tab:mqar_notation`); App. K.5 (`app-subsec:seeds`)",
        "App. D.5 (`noisy-attn`), `eqs-variance`; `figures`, `tables`, `application`, Figure 7, Section 12",
    ],
)
def test_a_true_citation_passes(text: str) -> None:
    assert faults(text) == []

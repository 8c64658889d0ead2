"""A later version with one field more in any spec reads every committed run under its name, and retrains none."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FIELD = '    noise_of_a_later_version: float = Field(0.0, description="new, and off")\n'
SPECS = {
    "every task": ("specs.py", "class TaskSpec(_Kind):"),
    "every model": ("specs.py", "class ModelSpec(_Kind):"),
    "training": ("specs.py", "class TrainSpec(Spec):"),
    "the run": ("specs.py", "class RunSpec(Spec):"),
    "one task": ("tasks/associative_recall.py", "class MQARSpec(AssociativeRecall):"),
    "one architecture": ("architectures/mamba.py", "class LinearMambaSpec(Sizes):"),
    "the record": ("records.py", "class RunRecord(Frozen):"),
}
CODE = """
import json, sys
from pathlib import Path
from recallscope.studies.experiment import experiments
from recallscope.runs.store import RunStore
from recallscope.runs.table import find_runs
from recallscope.runs.plan import make_plan
store = RunStore("store")
cells = {cell.run: cell for one in experiments() for cell in one.cells("small").values()}
plan = make_plan(cells.values(), store)
print(json.dumps({
    "listed": len(find_runs(store)), "records": len(list(store.records())), "missing": len(plan.missing),
    "faults": len(plan.faults), "torch": "torch" in sys.modules,
}))
"""


def asked(folder: Path, package: Path) -> dict[str, object]:
    """What a version of the package finds in the store of a folder."""
    env = {"PYTHONPATH": str(package), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def today(tmp_path_factory):
    folder = tmp_path_factory.mktemp("today")
    shutil.copytree(ROOT / "results" / "paper", folder / "store", ignore=shutil.ignore_patterns("index*"))
    found = asked(folder, ROOT / "src")
    runs = len((ROOT / "results" / "paper" / "runs.jsonl").read_bytes().splitlines()) - 1
    assert found | {"missing": 0} == {"listed": runs, "records": runs, "missing": 0, "faults": 0, "torch": False}
    return found


def add_field(package: Path, file: str, line: str) -> None:
    """A field more in the class that begins with `line`, after its docstring."""
    path = package / file
    text = path.read_text()
    assert line in text
    begin = text.index(line)
    end = begin + re.search(r'""".*?"""\n', text[begin:], re.DOTALL).end()
    text = text[:end] + FIELD + text[end:]
    if "import Field" not in text and ", Field" not in text:
        text = re.sub(r"^(from recallscope)", r"from pydantic import Field\n\1", text, count=1, flags=re.MULTILINE)
    path.write_text(text)


EACH = [pytest.param([one], marks=pytest.mark.slow, id=one) for one in SPECS]


@pytest.mark.parametrize("where", [pytest.param(list(SPECS), id="all at once"), *EACH])
def test_a_field_more_renames_and_retrains_nothing(where, tmp_path, today):
    shutil.copytree(ROOT / "src" / "recallscope", tmp_path / "later" / "recallscope")
    shutil.copytree(ROOT / "results" / "paper", tmp_path / "store", ignore=shutil.ignore_patterns("index*"))
    for name in where:
        add_field(tmp_path / "later" / "recallscope", *SPECS[name])
    before = sorted(entry.name for entry in (tmp_path / "store" / "runs").iterdir())
    assert asked(tmp_path, tmp_path / "later") == today
    assert sorted(entry.name for entry in (tmp_path / "store" / "runs").iterdir()) == before
    assert not (tmp_path / "store" / "damaged").exists()

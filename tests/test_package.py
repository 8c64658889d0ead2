"""`pip install recallscope`: the wheel has everything, and works where there is no repository around it."""

import json
import os
import re
import signal
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from recallscope import __version__

pytestmark = pytest.mark.surfaces

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RECALLSCOPE"))}


def call(*arguments: object, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in arguments], cwd=cwd, env=CLEAN | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{arguments}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def served(command: Path, *, cwd: Path) -> bytes:
    """The page of the explorer, asked for once."""
    arguments = [str(command), "explore", "--no-browser"]
    with subprocess.Popen(arguments, cwd=cwd, env=CLEAN, stdout=subprocess.PIPE, text=True) as server:
        try:
            with urlopen(server.stdout.readline().strip(), timeout=60) as page:
                return page.read()
        finally:
            server.send_signal(signal.SIGINT)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """Built from the sdist, as pip does: what the sdist lacks, the wheel lacks."""
    folder = tmp_path_factory.mktemp("dist")
    call(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    call(*pip, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, sdist, cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> Path:
    """The folder of an environment with the wheel alone; dependencies are those of this environment, by a .pth file.

    Such a file adds a folder to the path without reading the .pth files in it, so the editable install is not seen.
    """
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    call(*pip, "install", "--no-deps", "--no-index", "-q", wheel, cwd=folder)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"])
    return folder


def test_citation_and_changelog_name_this_version():
    """And the same day."""
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    (day,) = re.findall(r"^date-released: (.*)$", citation, re.MULTILINE)
    assert f"\nversion: {__version__}\n" in citation
    assert f"\n## {__version__}, {day}\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_citation_is_for_the_software_and_for_the_paper():
    """Every field that the format (CFF 1.2.0) asks for, with the paper under `references`."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "version", "license"} <= set(cited)
    assert cited["type"] == "software"
    (paper,) = cited["references"]
    assert (paper["type"], paper["year"]) == ("article", 2026)
    assert all({"given-names", "family-names"} <= set(author) for author in paper["authors"])


def test_every_file_of_the_package_is_in_the_wheel(wheel):
    files = {path.relative_to(SRC).as_posix() for path in (SRC / "recallscope").rglob("*") if path.is_file()}
    wanted = {name for name in files if "__pycache__" not in name}
    assert {"recallscope/py.typed", "recallscope/ops/csrc/kernels.c", "recallscope/studies/claims.toml"} <= wanted
    with zipfile.ZipFile(wheel) as archive:
        assert {name for name in archive.namelist() if ".dist-info/" not in name} == wanted
        (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        text = archive.read(metadata).decode()
    assert f"\nVersion: {__version__}\n" in text
    assert "Requires-Dist: torch" in text
    assert "\nRequires-Dist: torch>=2.6\n" not in text  # only as an extra


def test_it_works_in_a_clean_environment(installed):
    python, cache = installed / "venv" / "bin" / "python", {"RECALLSCOPE_CACHE": str(installed / "cache")}
    command = installed / "venv" / "bin" / "recallscope"
    where = call(python, "-c", "import recallscope; print(recallscope.__file__)", cwd=installed).strip()
    assert Path(where).is_relative_to(installed)
    assert call(command, "--version", cwd=installed) == f"recallscope {__version__}\n"
    facts = json.loads(call(command, "doctor", "--json", cwd=installed, **cache))
    assert facts["problems"] == []
    assert facts["torch"]["kernels"].startswith("compiled"), "the C sources of the wheel were not built"
    assert facts["torch"]["kernels_agree"]
    assert "p_recall" in call(
        command, "predict", "--vocab-size", 512, "--num-facts", 16, "--embed-dim", 48, "--state-dim", 16, cwd=installed
    )
    steps = ["--warmup-steps", 5, "--flat-steps", 5, "--decay-steps", 5, "--eval-size", 20, "--batch-size", 8]
    sizes = ["--vocab-size", 32, "--num-facts", 3, "--embed-dim", 8, "--state-dim", 4]
    call(command, "train", *sizes, *steps, "--out", "one", cwd=installed, **cache)
    assert json.loads(call(command, "measure", "one", "--json", cwd=installed, **cache))["accuracy"]["mean"] > 0
    assert "recall" in call(command, "inspect", "one", "--out", "look", cwd=installed, **cache)
    assert (installed / "look" / "scores.json").exists()
    assert b"recallscope" in served(command, cwd=installed)
    assert len(json.loads(call(command, "claims", "--json", cwd=installed))["claims"]) > 40
    assert "heads" in call(command, "reproduce", "--list", cwd=installed)

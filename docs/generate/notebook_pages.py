"""Notebooks are kept as text (docs/notebooks/*.py), run when the site is built, and shown as Markdown."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = ROOT / "docs" / "notebooks"
CACHE = ROOT / "build" / "notebooks"
SECONDS = 300  # after which a cell is given up; a notebook takes less than a minute on one core
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def notebook_pages() -> Iterator[tuple[str, str | bytes]]:
    """Path and content of every page and picture."""
    for path in sorted(NOTEBOOKS.glob("*.py")):
        text, pictures = _executed(path)
        yield f"notebooks/{path.stem}.md", text
        for name, data in pictures.items():
            yield f"notebooks/{name}", data


def _executed(path: Path) -> tuple[str, dict[str, bytes]]:
    """The page and its pictures; kept until the notebook or the package changes."""
    kept = CACHE / f"{path.stem}-{_digest(path)}.json"
    if not kept.exists():
        text, pictures = _run(path)
        CACHE.mkdir(parents=True, exist_ok=True)
        for old in CACHE.glob(f"{path.stem}-*.json"):
            old.unlink()
        kept.write_text(json.dumps([text, {name: data.hex() for name, data in pictures.items()}]))
    text, pictures = json.loads(kept.read_text())
    return text, {name: bytes.fromhex(data) for name, data in pictures.items()}


def _digest(path: Path) -> str:
    files = [path, Path(__file__), *sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "src").rglob("*.[ch]"))]
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


def _run(path: Path) -> tuple[str, dict[str, bytes]]:
    """Every cell, in the folder of the repository; a cell that fails ends the build with its message."""
    import jupytext
    from nbclient import NotebookClient
    from nbconvert import MarkdownExporter

    notebook = jupytext.read(path)
    os.environ.setdefault("PYTHONPATH", str(ROOT / "src"))
    client = NotebookClient(notebook, timeout=SECONDS, kernel_name="python3", resources={"metadata": {"path": ROOT}})
    client.create_kernel_manager()
    client.km.transport = "ipc"  # no port is opened
    client.execute()
    text, resources = MarkdownExporter().from_notebook_node(
        notebook, resources={"unique_key": path.stem, "output_files_dir": "."}
    )
    pictures = {Path(name).name: data for name, data in resources["outputs"].items()}
    source = f"docs/notebooks/{path.name}"
    return f"{COLOURS.sub('', text)}\n\n*This page is `{source}`, run when the site was built.*\n", pictures

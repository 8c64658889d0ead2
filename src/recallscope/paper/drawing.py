"""Work on a store in several processes, with progress, and pictures that are drawn again only if they would differ.

A picture is kept with a digest of all that made it: every record of the store, the package's files, the libraries'
versions. `.drawn.json` beside the pictures has these digests, and one of each picture's own bytes.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, cached_property, partial
from hashlib import sha256
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recallscope.atomic import write_atomically
from recallscope.paper.experiment import PaperFigure, Scale, paper_figures
from recallscope.paper.paper_runs import NoRunsError, PaperRuns
from recallscope.runs import RunStore

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Job = Callable[[PaperRuns | None], Any]  # a function of a module, or a partial of one: it is sent to other processes
Files = dict[str, bytes]  # by suffix
FEWEST = 4  # jobs for which further processes are worth their start


def do_jobs(runs: PaperRuns | None, jobs: Mapping[str, Job], workers: int = 1) -> dict[str, Any]:
    """What each job makes of the runs of a store, in the order of the jobs; says on stderr how far it is."""
    found: dict[str, Any] = {}
    for name, result in shown(_results(runs, jobs, workers), len(jobs)):
        found[name] = result
    return {name: found[name] for name in jobs}


def _results(runs: PaperRuns | None, jobs: Mapping[str, Job], workers: int) -> Iterator[tuple[str, Any]]:
    """Results as they come."""
    if workers < 2 or len(jobs) < FEWEST:
        yield from ((name, job(runs)) for name, job in jobs.items())
        return
    store = (runs.store.root, runs.scale) if runs else None
    pool = ProcessPoolExecutor(min(workers, len(jobs)), get_context("spawn"))
    try:
        waiting = {pool.submit(_do, job, store): name for name, job in jobs.items()}
        yield from ((waiting[future], future.result()) for future in as_completed(waiting))
    finally:
        pool.shutdown(cancel_futures=True)


def _do(job: Job, store: tuple[Path, Scale] | None) -> Any:
    return job(_opened(*store) if store else None)


@cache
def _opened(root: Path, scale: Scale) -> PaperRuns:
    """A store as a worker process has it: read once for all its jobs."""
    return PaperRuns(RunStore(root), scale)


def shown(results: Iterator[tuple[str, Any]], total: int) -> Iterator[tuple[str, Any]]:
    """The results, with a bar on a terminal and a line for each elsewhere."""
    if not sys.stderr.isatty():
        for count, (name, result) in enumerate(results, 1):
            print(f"[{count}/{total}] {name}", file=sys.stderr, flush=True)
            yield name, result
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        for name, result in results:
            bar.update(task, advance=1, description=name)
            yield name, result


class KeptPictures:
    """Pictures in a folder, and what made each."""

    def __init__(self, folder: Path, runs: PaperRuns | None) -> None:
        self.folder, self.runs = folder, runs
        self.path = folder / ".drawn.json"
        try:
            self.facts: dict[str, Any] = json.loads(self.path.read_text())
        except (OSError, ValueError):
            self.facts = {}

    @cached_property
    def _code(self) -> str:
        """Digest of the package's files and of the libraries that draw."""
        package = Path(__file__).parents[1]
        files = sorted(path for path in package.rglob("*") if path.suffix in (".py", ".toml", ".json"))
        libraries = [f"{name} {version(name)}" for name in ("matplotlib", "numpy", "scipy")]
        return _digest(*libraries, *(part for path in files for part in (str(path), path.read_bytes())))

    @cached_property
    def _store(self) -> str:
        """Digest of all measurements of the store; taken before any of them is read for drawing."""
        assert self.runs is not None
        root = self.runs.store.root
        files = sorted(path for glob in ("runs/*/record.json", "designed/*", "inside/*") for path in root.glob(glob))
        parts = (part for path in files for part in (str(path.relative_to(root)), path.read_bytes()))
        return _digest(str(root.resolve()), self.runs.scale, *parts)

    def digest(self, figure: PaperFigure) -> str:
        """Of all that makes a figure."""
        source = inspect.getsourcefile(inspect.unwrap(getattr(figure.draw, "func", figure.draw)))
        own = Path(source).read_bytes() if source else b""
        return _digest(figure.name, self._code, own, self._store if figure.experiment else "")

    def get(self, file: str, digest: str) -> bytes | None:
        """A picture that was made of the same and has not been touched since; None if there is none."""
        fact, path = self.facts.get(file), self.folder / file
        if not isinstance(fact, dict) or fact.get("made_of") != digest or not path.is_file():
            return None
        data = path.read_bytes()
        return data if fact.get("bytes") == _digest(data) else None

    def put(self, file: str, digest: str, data: bytes) -> Path:
        """Keep a picture."""
        write_atomically(self.folder / file, data)
        self.facts[file] = {"made_of": digest, "bytes": _digest(data)}
        write_atomically(self.path, json.dumps(self.facts, indent=1, sort_keys=True).encode() + b"\n")
        return self.folder / file


def _digest(*parts: str | bytes) -> str:
    """Of texts and bytes, each with its length, so that no two lists of parts look alike."""
    found = sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        found.update(len(data).to_bytes(8, "big") + data)
    return found.hexdigest()


def figure_job(name: str, kind: str) -> Job:
    """Draw a figure: kind `files` for PNG and SVG, `small` for the smaller of them. A text says why it cannot be."""
    return partial(_draw, name, kind)


def _draw(name: str, kind: str, runs: PaperRuns | None) -> Files | str:
    from recallscope.figures import figure_files, small_picture

    ways: dict[str, Callable[[Figure], Files]] = {
        "files": figure_files,
        "small": lambda f: {".small": small_picture(f)},
    }
    try:
        return ways[kind](paper_figures()[name].draw(runs))
    except NoRunsError as error:  # the message says how to get them
        return str(error)


def kept_files(kept: KeptPictures, figure: PaperFigure, suffixes: tuple[str, ...]) -> Files | None:
    """All files of a figure that would come out the same; None if one is missing."""
    found = {suffix: kept.get(figure.name + suffix, kept.digest(figure)) for suffix in suffixes}
    return {suffix: data for suffix, data in found.items() if data} if all(found.values()) else None


def draw_figures(
    runs: PaperRuns | None, figures: list[PaperFigure], out: Path, workers: int = 1
) -> dict[str, list[Path] | str]:
    """The PNG and SVG of every figure in a folder, or why it cannot be drawn; unchanged ones are left as they are."""
    kept, suffixes = KeptPictures(out, runs), (".png", ".svg")
    old = {figure.name: kept_files(kept, figure, suffixes) for figure in figures}
    todo = [figure for figure in figures if not old[figure.name]]
    digests = {figure.name: kept.digest(figure) for figure in todo}
    drawn = do_jobs(runs, {figure.name: figure_job(figure.name, "files") for figure in todo}, workers)
    answers: dict[str, list[Path] | str] = {}
    for figure in figures:
        files = drawn.get(figure.name)
        if isinstance(files, dict):
            for suffix, data in files.items():
                kept.put(figure.name + suffix, digests[figure.name], data)
        answers[figure.name] = files if isinstance(files, str) else [out / (figure.name + s) for s in suffixes]
    return answers

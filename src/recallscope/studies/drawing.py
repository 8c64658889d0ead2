"""Work on a store in several processes, with progress: the figures of the paper, and what the report asks for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recallscope.atomic import write_atomically
from recallscope.runs.store import RunStore
from recallscope.studies.experiment import PaperFigure, Scale, find_experiment, paper_figures
from recallscope.studies.paper_runs import NoRunsError, PaperRuns

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
    store = (runs.store.root, runs.scale, runs.names) if runs else None
    pool = ProcessPoolExecutor(min(workers, len(jobs)), get_context("spawn"))
    try:
        waiting = {pool.submit(_do, job, store): name for name, job in jobs.items()}
        yield from ((waiting[future], future.result()) for future in as_completed(waiting))
    finally:
        pool.shutdown(cancel_futures=True)


def _do(job: Job, store: tuple[Path, Scale, tuple[str, ...]] | None) -> Any:
    return job(_opened(*store) if store else None)


@cache
def _opened(root: Path, scale: Scale, names: tuple[str, ...]) -> PaperRuns:
    """A store as a worker process has it: read once for all its jobs."""
    return PaperRuns(RunStore(root), scale, names)


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


def figure_job(figure: PaperFigure, kind: str) -> Job:
    """Draw a figure: kind `files` for PNG and SVG, `small` for the smaller and the caption; or a text says why not."""
    return partial(_draw, figure.name, figure.experiment, kind)


def _draw(name: str, experiment: str | None, kind: str, runs: PaperRuns | None) -> Files | str:
    from recallscope.figures.style import figure_files, small_picture

    ways: dict[str, Callable[[Figure], Files]] = {
        "files": figure_files,
        "small": lambda f: {".small": small_picture(f), ".caption": str(f.get_label()).encode()},
    }
    try:
        figures = find_experiment(experiment).figures if experiment else paper_figures()
        return ways[kind](figures[name].draw(runs))
    except NoRunsError as error:  # the message says how to get them
        return str(error)


def draw_figures(
    runs: PaperRuns | None, figures: list[PaperFigure], out: Path, workers: int = 1
) -> dict[str, list[Path] | str]:
    """The PNG and SVG of every figure in a folder, or why it cannot be drawn."""
    drawn = do_jobs(runs, {figure.name: figure_job(figure, "files") for figure in figures}, workers)
    answers: dict[str, list[Path] | str] = {}
    for name, files in drawn.items():
        if isinstance(files, str):
            answers[name] = files
            continue
        paths = {out / (name + suffix): data for suffix, data in files.items()}
        for path, data in paths.items():
            write_atomically(path, data)
        answers[name] = list(paths)
    return answers

"""D-N grids in the terminal, side by side: theory, designed, trained; and the fitted a and b."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.findings.curves import fit_part
from recallscope.analysis.paper_runs import PaperRuns
from recallscope.sweeps.paper_grids import EXAMPLE, part_label
from recallscope.theory.law import find_law


def print_grids(runs: PaperRuns, console: Console | None = None) -> None:
    """The authors' small example: what the printed law says, ours says, circuits do, and trained models do."""
    console = console or Console()
    rows = runs.rows(EXAMPLE)
    if not rows:
        return
    trained = AccuracyGrid.from_runs(rows)
    circuits = runs.designed(part_label("designed", "mqar", "iii"))
    grids = {
        "printed law": AccuracyGrid.from_law(find_law("unified"), trained),
        "trained-sharing law": AccuracyGrid.from_law(find_law("trained-sharing"), trained),
        "designed circuit": AccuracyGrid.from_circuits(circuits) if circuits else None,
        "trained linear": trained,
    }
    columns = []
    for title, grid in grids.items():
        if grid is not None:
            columns.append(_table(title, grid, trained))
    beside = Table.grid(padding=(0, 3))
    beside.add_row(*columns[:2])
    beside.add_row()
    beside.add_row(*columns[2:])
    console.print(beside, highlight=False)
    fit = fit_part(rows)
    if fit is not None:
        console.print(
            f"\nfitted Phi(x - b), x = sqrt(N D / (a N_f + N)):  a = {fit.a:.2f} "
            f"[{fit.a_interval[0]:.2f}, {fit.a_interval[1]:.2f}] (paper 1.25), b = {fit.b:.2f} "
            f"[{fit.b_interval[0]:.2f}, {fit.b_interval[1]:.2f}] (paper {fit.b_printed:.2f}), "
            f"spread {fit.mean_error:.3f}",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )


def _table(title: str, grid: AccuracyGrid, like: AccuracyGrid) -> Table:
    """Rows D, columns N; only cells that the trained grid has."""
    table = Table(title=title, box=None, pad_edge=False, header_style="dim", title_justify="left")
    table.add_column("D \\ N", justify="right")
    for N in like.axes["state_dim"]:
        table.add_column(str(N), justify="right")
    for i, D in enumerate(like.axes["embed_dim"]):
        texts = []
        for j, N in enumerate(like.axes["state_dim"]):
            there = D in grid.axes["embed_dim"] and N in grid.axes["state_dim"]
            value = grid.accuracy[grid.axes["embed_dim"].index(D), grid.axes["state_dim"].index(N)] if there else None
            blank = value is None or value != value or like.accuracy[i, j] != like.accuracy[i, j]
            texts.append("-" if blank else f"{value:.3f}")
        table.add_row(str(D), *texts)
    return table

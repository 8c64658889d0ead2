"""`recallscope plot`: any two columns of a store against each other."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from recallscope.cli.flags import OptionalText, Unset
from recallscope.cli.output import print_json, warn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from recallscope.specs import Value

MOST_PANELS = 24
PANELS_IN_A_ROW = 4
MOST_IN_LEGEND = 14
MOST_NAMED = 5  # fields that a mean is also taken over


@dataclass(kw_only=True)
class Plot:
    """Plot any two columns of a store's runs.

    recallscope plot STORE --x state_dim --y test_accuracy --color embed_dim --facet num_facts --figure plot.png

    Each dot is a run, so seeds are separate dots, and lines join the means. The columns are those of recallscope store
    list, numeric or text.
    """

    store: Annotated[Path, tyro.conf.Positional]
    """Folder of the runs."""
    x: str
    """Column for the x axis, such as state_dim."""
    y: str = "test_accuracy"
    """Column for the y axis."""
    color: OptionalText = None
    """Column that selects the colour and line."""
    facet: OptionalText = None
    """Column that selects the panel."""
    where: Annotated[tuple[str, ...], Unset] = ()
    """Only runs that satisfy these, such as model=linear_mamba or "state_dim<=16"."""
    figure: Path = Path("plot.png")
    """File to write, .png or .svg."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Query, group, draw, say what was drawn and what the lines are means over."""
        from recallscope.analysis.table import also_varying, load_runs, points_by, split_by
        from recallscope.figures.style import check_picture, write_figure
        from recallscope.runs.store import RunStore
        from recallscope.runs.table import damage, find_runs, parse_conditions

        check_picture(self.figure)
        chosen = [name for name in (self.x, self.y, self.color, self.facet) if name]
        store = RunStore(self.store)
        # names a column that is not there, and the nearest ones
        find_runs(store, parse_conditions(self.where), columns=chosen, limit=1)
        every = load_runs(self.store, *self.where)
        every = every[every["status"] != "damaged"]
        warn(damage(store))
        rows = every.dropna(subset=[self.x, self.y]) if len(every) else every
        if rows.empty:
            raise ValueError(
                f"{self.store} has no run with both {self.x} and {self.y} that satisfies this. "
                f"recallscope store list {shlex.quote(str(self.store))} shows what it has."
            )
        facets = split_by(rows, self.facet)
        if len(facets) > MOST_PANELS:
            raise ValueError(f"{self.facet} has {len(facets)} values, and at most {MOST_PANELS} panels are drawn.")
        panels = {value: points_by(mine, self.x, self.y, self.color) for value, mine in facets.items()}
        write_figure(self._figure(panels), self.figure)
        varying = also_varying(rows, chosen)
        if self.json:
            drawn = [{"facet": value, "series": [asdict(one) for one in panel]} for value, panel in panels.items()]
            print_json({"file": str(self.figure), "runs": len(rows), "panels": drawn, "also_varying": varying})
            return 0
        left = (
            f", {len(every) - len(rows)} left out as they lack {self.x} or {self.y}" if len(rows) < len(every) else ""
        )
        print(f"{len(rows)} runs in {self.figure}{left}")
        if varying and any(one.means for series in panels.values() for one in series):
            more = f" and {len(varying) - MOST_NAMED} more" if len(varying) > MOST_NAMED else ""
            print(
                f"these runs also differ in {', '.join(varying[:MOST_NAMED])}{more}, and lines are means over that: "
                f"--color, --facet or --where tells them apart"
            )
        return 0

    def _figure(self, panels: dict[Value, list[Any]]) -> Figure:
        from recallscope.analysis.table import sorted_values
        from recallscope.figures.columns import draw_columns, shown
        from recallscope.figures.style import figure_style, new_figure

        wide = min(len(panels), PANELS_IN_A_ROW)
        high = -(-len(panels) // wide)
        every = [one for series in panels.values() for one in series]
        with figure_style():
            figure = new_figure(2.6 * wide + 1.8, 2.5 * high + 0.3)
            axes = figure.subplots(high, wide, sharex=True, sharey=True, squeeze=False).ravel()
            for ax in axes[len(panels) :]:
                ax.set_visible(False)
            for place, (ax, (value, series)) in enumerate(zip(axes, panels.items(), strict=False)):
                title = f"{self.facet} = {shown(value)}" if self.facet else ""
                draw_columns(series, ax, x=self.x, y=self.y, title=title, beside=every)
                lowest = place + wide >= len(panels)
                ax.tick_params(labelbottom=lowest)
                ax.set(xlabel=ax.get_xlabel() if lowest else "", ylabel=ax.get_ylabel() if place % wide == 0 else "")
            if self.color:
                self._legend(figure, axes, [shown(group) for group in sorted_values(one.group for one in every)])
        return figure

    def _legend(self, figure: Figure, axes: Any, labels: list[str]) -> None:
        dots = {label: dot for ax in axes for dot, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        kept = labels[:MOST_IN_LEGEND]
        more = f" (first {len(kept)} of {len(labels)})" if len(labels) > len(kept) else ""
        title = f"{str(self.color).replace('_', ' ')}{more}"
        figure.legend([dots[label] for label in kept], kept, title=title, loc="outside right upper")

"""Write the curves of finished runs for TensorBoard or Weights & Biases. Optional."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from recallscope.records import RunRecord
from recallscope.runs.grid import Cell
from recallscope.runs.views import View
from recallscope.specs import in_words


def tracked(view: View, tracker: str | None, root: Path) -> View:
    """The same view, which also writes each finished run to `STORE/trackers/`; without a tracker the view as it is."""
    if tracker is None:
        return view
    makers = {"tensorboard": _tensorboard, "wandb": _wandb}
    try:
        write = makers[tracker](root / "trackers" / tracker)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"--tracker {tracker} needs {error.name}, which is not installed. Run: pip install 'recallscope[trackers]'"
        ) from error
    shown = view.finished

    def finished(cell: Cell, record: RunRecord, *, by_another: bool = False) -> None:
        shown(cell, record, by_another=by_another)
        if not by_another:
            write(record)

    view.finished = finished  # type: ignore[method-assign]
    return view


def _tensorboard(folder: Path) -> Callable[[RunRecord], None]:
    from torch.utils.tensorboard import SummaryWriter

    def write(record: RunRecord) -> None:
        with SummaryWriter(str(folder / record.run)) as writer:
            for seen in record.history:
                if seen.loss is not None:
                    writer.add_scalar("loss", seen.loss, seen.step)
                writer.add_scalar("val_accuracy", seen.accuracy, seen.step)
            writer.add_scalar("test_accuracy", record.test_accuracy, record.steps)

    return write


def _wandb(folder: Path) -> Callable[[RunRecord], None]:
    import wandb

    folder.mkdir(parents=True, exist_ok=True)

    def write(record: RunRecord) -> None:
        config: dict[str, Any] = in_words(record.spec.model_dump(mode="json"))
        with wandb.init(mode="offline", dir=str(folder), project="recallscope", name=record.run, config=config) as run:
            for seen in record.history:
                run.log(
                    ({} if seen.loss is None else {"loss": seen.loss}) | {"val_accuracy": seen.accuracy}, step=seen.step
                )
            run.summary.update(test_accuracy=record.test_accuracy, flag=record.flag)

    return write

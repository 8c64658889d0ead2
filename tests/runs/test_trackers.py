"""Trackers get each finished run's curve, and a sweep without one needs none of them."""

import contextlib
import sys
import types

import pytest
from tiny_sweeps import tiny_grid

from recallscope.records import Evaluation, RunRecord
from recallscope.runs import View
from recallscope.runs.trackers import tracked

(CELL, *_) = tiny_grid(seeds=1).cells()
RECORD = RunRecord(
    run=CELL.run, spec=CELL.spec, test_accuracy=0.5, val_accuracy=0.5, test_queries=1, best_step=10, steps=20,
    seconds=0.0,
    history=[Evaluation(step=10, loss=2.0, accuracy=0.4), Evaluation(step=20, loss=1.0, accuracy=0.5)],
)  # fmt: skip


def test_tensorboard_gets_scalars_by_step(tmp_path, monkeypatch):
    seen = []

    class SummaryWriter(contextlib.AbstractContextManager):
        def __init__(self, folder):
            self.folder = folder

        def __exit__(self, *_):
            return None

        def add_scalar(self, name, value, step):
            seen.append((self.folder, name, value, step))

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", types.SimpleNamespace(SummaryWriter=SummaryWriter))
    view = tracked(View(), "tensorboard", tmp_path)
    view.finished(CELL, RECORD)
    view.finished(CELL, RECORD, by_another=True)  # its own sweep writes that
    folder = str(tmp_path / "trackers" / "tensorboard" / CELL.run)
    assert seen == [
        (folder, "loss", 2.0, 10), (folder, "val_accuracy", 0.4, 10), (folder, "loss", 1.0, 20),
        (folder, "val_accuracy", 0.5, 20), (folder, "test_accuracy", 0.5, 20),
    ]  # fmt: skip


def test_wandb_is_only_ever_used_offline(tmp_path, monkeypatch):
    began, logged, run = [], [], types.SimpleNamespace(summary={})
    run.log = lambda values, step: logged.append((step, values))

    @contextlib.contextmanager
    def init(**options):
        began.append(options)
        yield run

    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(init=init))
    tracked(View(), "wandb", tmp_path).finished(CELL, RECORD)
    assert began[0]["mode"] == "offline"
    assert began[0]["config"]["embed_dim"] == CELL.spec.model.embed_dim
    assert [step for step, _ in logged] == [10, 20]
    assert run.summary == {"test_accuracy": 0.5, "flag": ""}
    lost = RECORD.history[1].model_copy(update={"loss": None})
    tracked(View(), "wandb", tmp_path).finished(CELL, RECORD.model_copy(update={"history": [lost], "flag": "diverged"}))
    assert logged[-1] == (20, {"val_accuracy": 0.5})  # a loss that is not a number is not logged
    assert run.summary["flag"] == "diverged"


def test_a_missing_tracker_is_answered_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(ValueError, match=r"recallscope\[trackers\]"):
        tracked(View(), "wandb", tmp_path)

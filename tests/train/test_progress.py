"""A bar where somebody watches, and nowhere else."""

import sys

from recallscope.architectures.mamba import LinearMambaSpec
from recallscope.specs import RunSpec, TrainSpec
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.train.loop import train_run
from recallscope.train.progress import is_interactive

RUN = RunSpec(
    task=MQARSpec(vocab_size=16, num_facts=2),
    model=LinearMambaSpec(embed_dim=4, state_dim=2),
    train=TrainSpec(batch_size=2, warmup_steps=1, flat_steps=1, decay_steps=1, eval_size=4),
)


def test_a_bar_is_shown_on_a_terminal_unless_switched_off(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert is_interactive()
    shown = train_run(RUN)
    assert "training" in capsys.readouterr().err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    hidden = train_run(RUN, progress=False)
    train_run(RUN, on_progress=lambda tick: None)  # as workers do
    assert capsys.readouterr().err == ""
    assert shown.record.test_accuracy == hidden.record.test_accuracy


def test_nothing_is_shown_in_a_pipe_unless_asked_for(capsys):
    assert not is_interactive()
    train_run(RUN)
    assert capsys.readouterr().err == ""
    train_run(RUN, progress=True)
    assert "training" in capsys.readouterr().err


def test_a_notebook_watches(monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert is_interactive()

"""Training: bit-equal for equal specs, resumed as if never stopped; it learns, and shows a bar if somebody watches."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from recallscope.architectures.mamba import LinearMambaSpec, MambaSpec, MultiHeadSpec
from recallscope.architectures.model import build_model
from recallscope.architectures.user_module import user_module
from recallscope.ops import compiled
from recallscope.presets import PRESETS, preset_run
from recallscope.records import parse_record
from recallscope.specs import RunSpec, TrainSpec
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.theory.law import find_law
from recallscope.train.checkpoint import CheckpointError, OtherRunError, read_checkpoint
from recallscope.train.loop import stream, train_run
from recallscope.train.optimizer import FlatWeights, learning_rate
from recallscope.train.progress import is_interactive
from recallscope.train.weights import read_weights, write_weights


def tiny(model=None, seed=0, **train):
    settings = {"batch_size": 8, "warmup_steps": 5, "flat_steps": 15, "decay_steps": 20, "eval_every": 10} | train
    return RunSpec(
        task=MQARSpec(vocab_size=32, num_facts=3),
        model=model or LinearMambaSpec(embed_dim=8, state_dim=4),
        train=TrainSpec(**{"eval_size": 50} | settings),
        seed=seed,
    )


MODELS = [
    LinearMambaSpec(embed_dim=8, state_dim=4),
    LinearMambaSpec(embed_dim=8, state_dim=4, num_layers=2),
    MultiHeadSpec(embed_dim=8, state_dim=4, num_heads=2, head_pattern="MHA"),
    MambaSpec(embed_dim=8, state_dim=4),
    user_module(str(Path(__file__).parents[1] / "extension" / "my_odd_net.py") + ":Model"),
]


def facts(trained):
    record = trained.record.model_dump()
    del record["seconds"], record["environment"]
    return record, {name: tensor.clone() for name, tensor in trained.model.state_dict().items()}


def assert_same(a, b):
    assert a[0] == b[0]
    assert a[1].keys() == b[1].keys()
    assert all(torch.equal(a[1][name], b[1][name]) for name in a[1])


@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{Path(m.kind).name}-{getattr(m, 'num_layers', 1)}")
def test_equal_spec_gives_bit_equal_results(model):
    before = torch.get_rng_state()
    assert_same(facts(train_run(tiny(model))), facts(train_run(tiny(model))))
    assert torch.equal(before, torch.get_rng_state())  # no global stream was touched


def test_a_record_says_which_kernels_ran(monkeypatch):
    """With other kernels the numbers may differ in their last digits: then so does the environment."""
    assert re.fullmatch(r"compiled [0-9a-f]{12}", train_run(tiny()).record.environment["kernels"])
    monkeypatch.setattr(compiled, "_opened", lambda: (None, "torch (no C compiler)"))
    assert train_run(tiny()).record.environment["kernels"] == "torch (no C compiler)"


def test_seeds_and_purposes_have_streams_of_their_own():
    runs = [tiny(seed=0), tiny(seed=1)]
    streams = [stream(run, purpose) for run in runs for purpose in ("weights", "batches", "validation", "test")]
    assert len({tuple(torch.rand(4, generator=one).tolist()) for one in streams}) == 8


class Stopped(Exception):
    pass


@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{Path(m.kind).name}-{getattr(m, 'num_layers', 1)}")
@pytest.mark.parametrize(
    "train",
    [
        {"accumulate": 1},
        {"accumulate": 2},
        {"training_facts": "curriculum", "curriculum_accuracy": 0.05, "accumulate": 2},
        {"training_facts": "mixture"},
    ],
    ids=["plain", "accumulate", "curriculum", "mixture"],
)
def test_a_stopped_run_resumes_bit_equal(model, train, tmp_path, monkeypatch):
    run = tiny(model, weight_decay=0.1, **train)
    whole = facts(train_run(run))
    monkeypatch.setattr("recallscope.train.loop.PROGRESS_EVERY", 0.0)
    path = tmp_path / "checkpoint.safetensors"
    for stop_at in (7, 13, 31):

        def stop(tick, stop_at=stop_at):
            if tick.step == stop_at:
                raise Stopped

        with pytest.raises(Stopped):
            train_run(run, checkpoint=path, on_progress=stop)
    assert_same(whole, facts(train_run(run, checkpoint=path)))
    assert_same(whole, facts(train_run(run, checkpoint=path)))  # finished already: only tested again


WORKER = """
import sys, torch
from pathlib import Path
torch.set_num_threads(1)
from recallscope.specs import RunSpec
from recallscope.train.loop import train_run
from recallscope.train.weights import write_weights, write_record
run, out = RunSpec.model_validate_json(sys.argv[1]), Path(sys.argv[2])
trained = train_run(run, checkpoint=out / "checkpoint.safetensors")
write_weights(out / "weights.safetensors", trained.model, run.task)
write_record(out / "record.json", trained.record)
"""


@pytest.mark.slow
def test_kill_nine_then_resume_is_bit_equal(tmp_path):
    """SIGKILL at ten random moments of a run of about a second and a half; the last start finishes it.

    In the fast suite tests/runs/test_local_engine.py kills the worker of a run twice.
    """
    run = tiny(batch_size=64, warmup_steps=50, flat_steps=450, decay_steps=700, eval_every=20, stop_accuracy=1.0)
    whole = facts(train_run(run))
    moments = random.Random(7)
    kills = 0
    command = [sys.executable, "-c", WORKER, run.model_dump_json(), str(tmp_path)]
    while kills < 10:
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        checkpoint = tmp_path / "checkpoint.safetensors"
        seen = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and process.poll() is None:  # wait for some progress, then strike at random
            if checkpoint.exists() and checkpoint.stat().st_mtime_ns != seen:
                break
            time.sleep(0.005)
        time.sleep(moments.random() * 0.08)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills += 1
    assert read_checkpoint(tmp_path / "checkpoint.safetensors", run) is not None
    subprocess.run(command, check=True, timeout=120)
    record = parse_record((tmp_path / "record.json").read_bytes())
    model, task = read_weights(tmp_path / "weights.safetensors")
    again = record.model_dump()
    del again["seconds"], again["environment"]
    assert task == run.task
    assert_same(whole, (again, dict(model.state_dict())))


def test_a_damaged_checkpoint_and_that_of_another_run_are_refused_and_left_alone(tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    assert read_checkpoint(path, tiny()) is None
    path.write_bytes(b"\x10\x00\x00 nonsense")
    with pytest.raises(CheckpointError, match="is damaged"):
        train_run(tiny(), checkpoint=path)
    assert path.read_bytes() == b"\x10\x00\x00 nonsense"
    path.unlink()
    train_run(tiny(), checkpoint=path)
    with pytest.raises(OtherRunError, match=r"in seed \(default there, 1 here\)"):
        read_checkpoint(path, tiny(seed=1))
    before = path.read_bytes()
    with pytest.raises(OtherRunError, match="another run"):
        train_run(tiny(seed=1), checkpoint=path)
    assert path.read_bytes() == before


def test_a_run_whose_weights_are_lost_stops_there_and_keeps_the_best_state_before(monkeypatch):
    """The gradient of step 25 is spoilt: the steps before are those of the healthy run, bit for bit."""
    whole = train_run(tiny())
    step = FlatWeights.step

    def spoilt(self, *args, **options):
        if self.optimizers[0].steps == 24:
            self.grads[0][0] = float("nan")
        return step(self, *args, **options)

    monkeypatch.setattr(FlatWeights, "step", spoilt)
    cut = train_run(tiny())
    assert (cut.record.flag, cut.record.steps) == ("diverged", 25)
    assert cut.record.history[:2] == whole.record.history[:2]
    assert (cut.record.history[2].step, cut.record.history[2].loss) == (25, None)
    assert cut.record.best_step in (10, 20)
    assert all(bool(tensor.isfinite().all()) for tensor in cut.model.state_dict().values())


def test_a_norm_that_overflows_is_no_divergence_while_the_weights_are_finite():
    model = build_model(LinearMambaSpec(embed_dim=8, state_dim=4), 32, torch.Generator().manual_seed(0))
    weights = FlatWeights(model, TrainSpec())
    weights.grads[0][0] = 1e30  # its square is more than float32 holds
    assert weights.step(0.01, 1.5)
    weights.grads[0][0] = float("nan")
    assert not weights.step(0.01, 1.5)


def test_learning_rate_follows_the_schedule():
    train = TrainSpec(learning_rate=1.0, warmup_steps=4, flat_steps=3, decay_steps=4)
    rates = [learning_rate(train, step) for step in range(12)]
    assert rates[:8] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert rates[9] == pytest.approx(0.5)
    assert rates[11] == pytest.approx(0.0, abs=1e-12)


def test_early_stop_and_best_state():
    run = RunSpec(
        task=MQARSpec(vocab_size=16, num_facts=2),
        model=LinearMambaSpec(embed_dim=24, state_dim=12),
        train=TrainSpec(
            batch_size=64, warmup_steps=10, flat_steps=1000, decay_steps=0, eval_every=20, eval_size=100,
            stop_accuracy=0.95,
        ),
    )  # fmt: skip
    record = train_run(run).record
    assert record.steps < 1000
    assert record.val_accuracy >= 0.95
    assert record.history[-1].accuracy == record.val_accuracy
    assert record.best_step == record.steps
    assert record.test_accuracy > 0.85


def test_it_learns_what_the_law_predicts():
    """(D, N) = (16, 8) at V=64, N_f=4 for 600 steps: within .04 of `trained-sharing`."""
    run = RunSpec(
        task=MQARSpec(vocab_size=64, num_facts=4),
        model=LinearMambaSpec(embed_dim=10, state_dim=4),
        train=TrainSpec(batch_size=64, warmup_steps=50, flat_steps=300, decay_steps=450, eval_size=2000),
    )
    measured = train_run(run).record.test_accuracy
    predicted = float(find_law("trained-sharing")(vocab_size=64, num_facts=4, embed_dim=10, state_dim=4))
    assert 0.3 < predicted < 0.98
    assert abs(measured - predicted) < 0.04


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_run(name):
    run = preset_run(name)
    assert RunSpec.model_validate_json(run.model_dump_json()) == run
    changed = preset_run(name, train={"batch_size": 32}, seed=3)
    assert (changed.train.batch_size, changed.seed) == (32, 3)


def test_presets_are_the_published_settings():
    steps = {"dn-linear": 2000, "dn-mamba": 20_000, "layers": 4000, "layers-ar": 10_000, "heads": 4000}
    steps |= {"large-vocab": 12_000, "repeated-keys": 7500, "minimality": 4000}
    assert {name: preset_run(name).train.total_steps for name in steps} == steps
    assert preset_run("layers").task.length == 320
    assert preset_run("dn-linear", task={"num_facts": 32}).task.length == 128


def test_weights_survive_the_disk_and_strangers_are_refused(tmp_path):
    trained = train_run(tiny())
    path = tmp_path / "w.safetensors"
    write_weights(path, trained.model, trained.record.spec.task)
    model, task = read_weights(path)
    assert task == trained.record.spec.task
    assert_same((task, model.state_dict()), (task, trained.model.state_dict()))
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ValueError, match="safetensors"):
        read_weights(path)
    with pytest.raises(FileNotFoundError):
        read_weights(tmp_path / "none.safetensors")
    assert json.loads(trained.record.model_dump_json())["schema_version"] == 3


RUN = tiny(batch_size=2, warmup_steps=1, flat_steps=1, decay_steps=1, eval_size=4)


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

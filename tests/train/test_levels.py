"""A curriculum over the number of facts: its levels, when it goes on, and that it costs as many tokens."""

import pytest
import torch

from recallscope.architectures.mamba import LinearMambaSpec
from recallscope.specs import RunSpec, TrainSpec, parse_task
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.train.levels import CHECK_EVERY, Levels, LevelState
from recallscope.train.loop import train_run
from recallscope.train.optimizer import learning_rate


def run_spec(num_facts=6, **train):
    settings = {"batch_size": 8, "warmup_steps": 5, "flat_steps": 15, "decay_steps": 60, "eval_every": 40}
    return RunSpec(
        task=MQARSpec(vocab_size=32, num_facts=num_facts),
        model=LinearMambaSpec(embed_dim=8, state_dim=4),
        train=TrainSpec(**settings, eval_size=50, **train),
    )


@pytest.mark.parametrize(
    ("fields", "facts", "lengths"),
    [
        ({"num_facts": 6}, [1, 2, 4, 6], [4, 8, 16, 24]),
        ({"num_facts": 8, "length": 64}, [1, 2, 4, 8], [8, 16, 32, 64]),
        ({"num_facts": 5, "length": 22}, [1, 2, 4, 5], [4, 8, 16, 22]),
        ({"num_facts": 1}, [1], [4]),
        ({"kind": "ar", "num_facts": 4}, [1, 2, 4], [3, 5, 9]),
        ({"kind": "repeated", "num_facts": 3, "key_repeats": 2}, [1, 2, 3], [6, 12, 18]),
    ],
)
def test_levels_have_fewer_facts_in_as_much_shorter_sequences(fields, facts, lengths):
    task = parse_task({"vocab_size": 32, "filler": "zero", **fields})
    levels = task.levels()
    assert [level.num_facts for level in levels] == facts
    assert [level.length for level in levels] == lengths
    assert levels[-1] == task
    assert {(level.kind, level.vocab_size, level.filler) for level in levels} == {(task.kind, 32, "zero")}


@pytest.mark.parametrize("arm", ["curriculum", "mixture"])
def test_every_step_has_as_many_tokens(arm):
    run, state = run_spec(num_facts=8, training_facts=arm), LevelState()
    levels, generator = Levels(run, state), torch.Generator().manual_seed(0)
    seen = set()
    for step in range(1, 80):
        batch = levels.batch(generator)
        assert batch.tokens.numel() == 8 * 32
        seen.add(batch.values.shape[1])
        levels.after(step)
    assert seen == {1, 2, 4, 8}


def test_a_level_ends_at_the_latest_with_its_share_of_the_steps():
    record = train_run(run_spec(training_facts="curriculum", curriculum_accuracy=1.0)).record
    assert record.levels_ended == [13, 26, 40]  # thirds of half of 80 steps
    assert train_run(run_spec()).record.levels_ended is None


def test_a_level_ends_when_the_running_accuracy_is_reached():
    """Accuracies above 0 are enough here: each level ends at a look, every few steps, and the target comes early."""
    record = train_run(run_spec(training_facts="curriculum", curriculum_accuracy=0.0)).record
    assert record.levels_ended == [1, 1, 1]
    state = LevelState()
    levels = Levels(run_spec(training_facts="curriculum", curriculum_accuracy=0.9), state)
    state.accuracy = 0.91
    levels.after(CHECK_EVERY)
    assert (state.ended, state.accuracy) == ([CHECK_EVERY], 0.0)
    levels.after(CHECK_EVERY + 1)
    assert state.ended == [CHECK_EVERY]


def test_the_decay_begins_on_the_target():
    train = run_spec(training_facts="curriculum").train
    rates = [learning_rate(train, step, target_from=40) for step in range(80)]
    assert rates[5:41] == [train.learning_rate] * 36
    assert rates[41] < rates[40]
    assert rates[60] == pytest.approx(train.learning_rate / 2)
    assert [learning_rate(train, step, 12) for step in range(80)] == [learning_rate(train, step) for step in range(80)]


def test_binding_is_logged_in_every_evaluation():
    record = train_run(run_spec(num_facts=2)).record
    for seen in (*record.history, record):
        accuracy = getattr(seen, "accuracy", None) or record.test_accuracy
        assert seen.in_context >= accuracy
        assert seen.binding == pytest.approx((accuracy / seen.in_context - 1 / 2) / (1 - 1 / 2))
    assert train_run(run_spec(num_facts=1)).record.binding is None  # any value of the context is the right one

"""What may be said of an accuracy: a run at chance is extended, and so is one that gains; modules are checked first."""

import inspect
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import recallscope as rs
from made_records import made
from recallscope.architectures.user_module_model import UserModuleError, module_in_memory
from recallscope.measuring.learning import Learning, learn
from recallscope.measuring.measure import likely_causes, next_command
from recallscope.measuring.training_runs import RATES, RunFailedError, Training, search_rate, store_trainer
from recallscope.records import Evaluation, binding
from recallscope.specs import RunSpec, TrainSpec, parse_model
from recallscope.tasks.drawing import sample_batch

TASK = rs.MQARSpec(vocab_size=32, num_facts=4)
RUN = RunSpec(task=TASK, model=rs.user_module("examples/gru.py:Model"), train=TrainSpec())


def trainer(curve):
    """Runs whose accuracy is a function of rate, steps and seed; every answer is a value of the context."""

    def of(run):
        return curve(run.train.learning_rate, run.train.total_steps, run.seed)

    def train(runs):
        return [Training(record(run, of(run)), True, lambda: None) for run in runs]

    return train


def record(run, accuracy):
    history, bound = [Evaluation(step=1, loss=1.0, accuracy=accuracy)], {"in_context": 1.0}
    bound |= {"binding": binding(accuracy, 1.0, 4)}
    return made(run, accuracy, **bound, test_queries=8000, steps=run.train.total_steps, history=history)


def test_a_model_that_stays_at_chance_did_not_learn_after_four_times_the_steps():
    found = learn(RUN, trainer(lambda rate, steps, seed: 0.25))
    assert [stage.steps for stage in found.stages] == [2000, 4000, 8000]
    assert [search.steps for search in found.searches] == [1000, 2000], "rates are searched anew while nothing begins"
    verdict = found.verdict(extended=True)
    assert verdict.word == "did not learn"
    assert not verdict.learned
    assert "2,000, 4,000, 8,000 steps" in verdict.sentence
    assert "accuracy 0.2500 is not above the 0.2500 of guessing any of the 4 values" in verdict.sentence
    assert "no capacity" in verdict.sentence


def test_a_model_that_does_not_begin_is_trained_with_fewer_facts_first_unless_the_user_chose_otherwise():
    def learns(run):
        reached = {("curriculum", 0.001): 0.5, ("mixture", 0.003): 0.99}
        return reached.get((run.train.training_facts, run.train.learning_rate), 0.25)

    def train(runs):
        return [Training(record(run, learns(run)), True, None) for run in runs]

    found = learn(RUN, train)
    assert [(one.steps, one.rate, one.run.train.training_facts) for one in found.stages] == [(2000, 0.003, "mixture")]
    assert learn(RUN, train, easier=False).verdict(extended=True).word == "did not learn"
    assert learn(RUN, train, search=False).stages[1].run.train.training_facts == "curriculum"


def test_a_rate_that_only_learns_in_longer_trials_is_found():
    found = learn(RUN, trainer(lambda rate, steps, seed: 0.99 if rate == 0.001 and steps >= 2000 else 0.25))
    assert found.best.rate == 0.001
    assert found.verdict(extended=True).word == "converged"


def test_a_rate_whose_trial_fails_is_one_that_cannot_be_chosen():
    """Such as by NaN at that rate; only if all fail, the error is told."""

    def failing(*bad):
        def train(runs):
            done = [None if run.train.learning_rate in bad else Training(record(run, 0.9), True, None) for run in runs]
            if None in done:
                raise RunFailedError("returned NaN", done)
            return done

        return train

    found = search_rate(RUN, failing(0.01))
    assert found.chosen == 0.003
    assert "of 0.01 (failed), 0.003 (0.900)" in found.sentence()
    with pytest.raises(RunFailedError, match="returned NaN"):
        search_rate(RUN, failing(*RATES))


def test_doubling_tells_converged_from_rising():
    flat = learn(RUN, trainer(lambda rate, steps, seed: 0.64 + 0.001 * math.log2(steps)))
    assert [stage.steps for stage in flat.stages] == [2000, 4000]
    assert flat.verdict(extended=True).word == "converged"
    assert "doubling the steps to 4,000 changed the accuracy by +0.0010" in flat.verdict(extended=True).sentence
    rising = learn(RUN, trainer(lambda rate, steps, seed: 0.3 + 0.1 * math.log2(steps / 1000)))
    assert [stage.steps for stage in rising.stages] == [2000, 4000, 8000]
    assert rising.verdict(extended=True).word == "still rising"
    near = learn(RUN, trainer(lambda rate, steps, seed: 0.985))
    assert len(near.stages) == 1, "it cannot gain 0.02"


def test_a_run_that_loses_by_more_steps_is_repeated_at_a_lower_rate_and_never_called_converged():
    def curve(rate, steps, seed):
        return {0.01: 0.63 - 0.1 * (steps >= 4000), 0.003: 0.1 + 0.3 * math.log10(steps / 100)}.get(rate, 0.25)

    found = learn(RUN, trainer(curve))
    assert [(one.steps, one.rate) for one in found.stages] == [(2000, 0.01), (4000, 0.01), (4000, 0.003), (8000, 0.003)]
    assert found.verdict(extended=True).word == "still rising"
    assert found.best is found.last
    falling = learn(RUN, trainer(lambda rate, steps, seed: 0.7 - 0.1 * (steps > 2000)))
    assert [(one.steps, one.rate) for one in falling.stages] == [(2000, 0.01), (4000, 0.01), (4000, 0.003)]
    verdict = falling.verdict(extended=True)
    assert (verdict.word, falling.best.steps) == ("unstable", 2000)
    assert "0.7000 (2,000 steps at 0.01), 0.6000 (4,000 steps at 0.01), 0.6000 (4,000 " in verdict.sentence


def test_seeds_of_which_some_learn_are_not_averaged():
    found = learn(RUN, trainer(lambda rate, steps, seed: 0.9 if seed % 2 else 0.25), seeds=3, search=False)
    verdict = found.verdict(extended=True)
    assert (verdict.word, verdict.learned) == ("seeds differ", False)
    assert verdict.sentence.startswith("1 of 3 seeds learned")


def test_given_steps_are_not_extended_and_it_is_said():
    found = learn(RUN, trainer(lambda rate, steps, seed: 0.5), search=False, extend=False)
    assert len(found.stages) == 1
    assert found.verdict(extended=False).word == "not extended"


class Small(nn.Module):
    """Embeddings of GPT-2's initial scale, dropout, and attention without positions."""

    def __init__(self, vocab_size: int, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width)
        nn.init.normal_(self.embed.weight, std=0.02)
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(width, vocab_size)

    def forward(self, tokens):
        x = self.drop(self.embed(tokens))
        return self.head(nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True))


def test_likely_causes_are_looked_at():
    model = rs.build_model(module_in_memory(Small), 32, torch.Generator().manual_seed(0))
    found = "\n".join(likely_causes(model, TASK, learn(RUN, trainer(lambda rate, steps, seed: 0.25))))
    assert "standard deviation 0.020 of module.embed, width 16, small: width^-1/2 = 0.250" in found
    assert "0.01, 0.003, 0.001, 0.0003 for 1,000 and 2,000 steps; all stayed at chance" in found
    assert "positions: none" in found
    assert "dropout: two passes in training mode differ" in found
    gru = rs.build_model(rs.user_module("examples/gru.py:Model"), 32, torch.Generator().manual_seed(0))
    other = "\n".join(likely_causes(gru, TASK, Learning(learn(RUN, trainer(lambda *_: 0.25)).stages)))
    assert "not small" in other
    assert "only 0.01 was tried" in other
    assert "order of earlier tokens changes the logits" in other
    assert "dropout" not in other


def test_the_next_command_has_four_times_the_steps():
    run = RUN.model_copy(update={"model": rs.user_module("examples/gru.py:Model", width=8)})
    assert next_command(run) == (
        "recallscope measure examples/gru.py:Model --model-args '{\"width\":8}' --vocab-size 32 --num-facts 4 "
        "--warmup-steps 400 --flat-steps 1600 --decay-steps 6000"
    )


SHORT = {"batch_size": 16, "eval_size": 300, "eval_every": 40, "warmup_steps": 10, "flat_steps": 40, "decay_steps": 50}


class Memory(nn.Module):
    """Linear attention with the key of the token before, and a parameter that nothing reads."""

    def __init__(self, vocab_size: int = 32, width: int = 16, keys: int = 8) -> None:
        super().__init__()
        self.embed, self.key = nn.Embedding(vocab_size, width), nn.Linear(width, keys, bias=False)
        self.head, self.unused = nn.Linear(width, vocab_size), nn.Parameter(torch.zeros(3))

    def forward(self, tokens):
        x = self.embed(tokens)
        query = self.key(x)
        key = nn.functional.pad(query, (0, 0, 1, 0))[:, :-1]
        return self.head((query @ key.mT).tril() @ x)


def test_a_module_in_memory_is_measured_and_left_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    task, module = rs.MQARSpec(vocab_size=32, num_facts=2), Memory()
    before = {name: weight.clone() for name, weight in module.state_dict().items()}
    found = rs.measure(module, task, train=TrainSpec(**SHORT), compare_with=[])
    assert found.verdict.learned
    assert found.accuracy.mean > 0.6
    assert found.information.held > 0
    assert "no gradient reaches unused" in found.warnings[-1]
    assert all(torch.equal(before[name], weight) for name, weight in module.state_dict().items())
    assert all(weight.grad is None for weight in module.parameters())
    same = rs.measure(Memory, task, train=TrainSpec(**SHORT), compare_with=[])
    assert same.verdict.learned
    assert not list(tmp_path.iterdir()), "nothing is kept of a module that only this process has"


def test_weights_that_do_not_recall_get_no_size_no_bits_and_no_rank():
    """Head and embedding are unrelated: a memory whose own initial weights happen to fit recalls a little untrained."""
    task, module, generator = rs.MQARSpec(vocab_size=32, num_facts=2), Memory(), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_(generator=generator)
    found = rs.measure(module, task, as_it_is=True, compare_with=[], num_sequences=200)
    assert found.verdict.word == "did not learn"
    assert (found.information, found.linear, found.place, found.place_per_entry) == (None,) * 4
    assert "did not learn" in found.headline
    assert "stayed at chance" in found.verdict.sentence
    assert "stayed at chance" in rs.evaluate(module, task, 200, 0).warning


def test_capacity_of_a_function_that_makes_a_module():
    task = rs.MQARSpec(vocab_size=32, num_facts=2)
    found = rs.capacity(Memory, task, target=0.5, train=TrainSpec(**SHORT), max_runs=2, width=12)
    assert len(found.runs) <= 2
    assert found.rate is None
    with pytest.raises(ValueError, match="cannot be looked for"):
        rs.capacity(Memory, task, solve_for="vocab_size")


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ("lambda self, x: x + x.mean(1, keepdim=True)", "looks ahead: the logits after token 0 change"),
        ("lambda self, x: x.double()", None),
        ("lambda self, x: x.long()", "logits are floating-point"),
        ("lambda self, x: x[:, :-1]", "not logits of shape"),
        ("lambda self, x: x.detach()", "it cannot learn"),
        ("lambda self, x: x / 0 * 0", "NaN or infinity"),
    ],
)
def test_a_module_is_checked_before_it_is_trained(made, says):
    class Net(Memory):
        change = eval(made)

        def forward(self, tokens):
            return self.change(super().forward(tokens))

    model = rs.build_model(module_in_memory(Net), 32, torch.Generator().manual_seed(0))
    if says is None:
        model.check_batch(sample_batch(TASK, 2, 0))
    else:
        with pytest.raises(UserModuleError, match=says):
            model.check_batch(sample_batch(TASK, 2, 0))


def test_lengths_of_the_curriculum_are_tried_before_anything_is_trained():
    class Chunks(Memory):
        def forward(self, tokens):
            if tokens.shape[1] % 16:
                raise ValueError("length must be a multiple of 16")
            return super().forward(tokens)

    with pytest.raises(UserModuleError, match=r"begins with 4 tokens; with --training-facts target every .* has 16"):
        rs.measure(Chunks, TASK, train=TrainSpec(**SHORT, training_facts="curriculum"), compare_with=[])
    asked, model = [], rs.build_model(module_in_memory(Chunks), 32, torch.Generator())

    def train(runs):
        asked.extend(runs)
        return [replace(done, weights=lambda: model) for done in trainer(lambda *_: 0.25)(runs)]

    measured = rs.measure(Chunks, TASK, trainer=train, compare_with=[])
    assert {run.train.training_facts for run in asked} == {"target"}
    assert measured.verdict.checked[-1].startswith("fewer facts first: not tried, as in-memory:Chunks: forward(tokens)")


def test_weights_that_read_the_future_are_refused_as_well():
    class Ahead(Memory):
        def forward(self, tokens):
            return super().forward(tokens).flip(1)

    for judged in (lambda: rs.evaluate(Ahead(), TASK, 10, 0), lambda: rs.measure(Ahead(), TASK, as_it_is=True)):
        with pytest.raises(UserModuleError, match="looks ahead"):
            judged()


def test_a_run_that_diverged_is_said_to_have_diverged():
    def train(runs):
        lost = {"history": [Evaluation(step=1, loss=None, accuracy=0.25)], "flag": "diverged"}
        return [Training(record(run, 0.25).model_copy(update=lost), True, None) for run in runs]

    assert (
        "after 2,000, 4,000, 8,000 steps it diverged: at step 1 its loss"
        in learn(RUN, train).verdict(extended=True).sentence
    )


OWN = torch.Generator().manual_seed(0)


@pytest.mark.parametrize(
    ("change", "is_judged"),
    [
        (lambda self, x: x, True),
        (lambda self, x: nn.functional.dropout(x, 0.2), True),  # in evaluation as well, from torch's global stream
        (lambda self, x: x + torch.from_numpy(np.random.randn(*x.shape)).float(), True),  # noqa: NPY002 (numpy's)
        (lambda self, x: self.norm(x.mT).mT, True),  # BatchNorm, which in evaluation has its running statistics
        (lambda self, x: nn.functional.batch_norm(x.mT, None, None, training=True).mT, False),  # always the batch's
        (lambda self, x: x + torch.randn(x.shape, generator=OWN), False),  # a stream of its own
        (lambda self, x: x + 1.0 * (torch.rand(x.shape, generator=OWN) < 1e-3), False),  # half the calls have some
        (lambda self, x: (x + self.calls, self.calls.add_(1))[0], False),  # a state kept between calls
    ],
    ids=["plain", "dropout", "numpy", "BatchNorm", "batch statistics", "own noise", "rare noise", "kept state"],
)
def test_noise_batch_statistics_and_a_kept_state_are_not_taken_for_looking_ahead(change, is_judged):
    """A causal module passes; one that adds the mean over all tokens is refused wherever that can be told."""

    class Causal(Memory):
        def __init__(self, vocab_size=32):
            super().__init__(vocab_size)
            self.norm = nn.BatchNorm1d(vocab_size)
            self.register_buffer("calls", torch.zeros(()))

        def logits(self, tokens):
            return super().forward(tokens)

        def forward(self, tokens):
            return change(self, self.logits(tokens))

    class Ahead(Causal):
        def logits(self, tokens):
            x = super().logits(tokens)
            return x + x.mean(1, keepdim=True)

    batch = sample_batch(TASK, 2, 0)
    made = {net: rs.build_model(module_in_memory(net), 32, torch.Generator().manual_seed(0)) for net in (Causal, Ahead)}
    for _ in range(20):
        made[Causal].check_batch(batch)
    assert bool(made[Causal].not_judged) != is_judged
    if is_judged:
        with pytest.raises(UserModuleError, match="looks ahead"):
            made[Ahead].check_batch(batch)


def test_outputs_are_checked_at_every_call():
    """A module that begins to return NaN, or another shape, at some later call."""

    class Later(Memory):
        broken = False

        def forward(self, tokens):
            return super().forward(tokens) * (float("nan") if Later.broken else 1.0)

    model = rs.build_model(module_in_memory(Later), 32, torch.Generator().manual_seed(0))
    rs.evaluate(model, TASK, 10, 0)
    Later.broken = True
    with pytest.raises(UserModuleError, match="returned NaN or infinity"):
        rs.evaluate(model, TASK, 10, 0)


def test_a_module_that_breaks_while_it_is_trained_is_not_tried_again(tmp_path, monkeypatch):
    """A second try from the last checkpoint might hide it; one clear sentence says what is wrong."""
    source = inspect.getsource(Memory).replace("(query @ key.mT)", "(query @ key.mT * self.broken(tokens))")
    later = "    def broken(self, x):\n        return 1.0 if self.training or len(x) == 2 else math.nan\n"
    (tmp_path / "nets.py").write_text(f"import math, torch\nfrom torch import nn\n\n{source}{later}")
    monkeypatch.chdir(tmp_path)
    run = RunSpec(task=TASK, model=rs.user_module("nets.py:Memory"), train=TrainSpec(**SHORT))
    with pytest.raises(RunFailedError) as raised:
        store_trainer(tmp_path / "store", workers=0)([run])
    said = "its worker was stopped: nets.py:Memory: forward(tokens), in evaluation, tokens of shape"
    assert str(raised.value).startswith(f"the training of nets.py:Memory failed: {said}")
    assert str(raised.value).count("NaN") == 1
    assert rs.RunStore(tmp_path / "store").failure(run.content_hash()).tries == 1


MIXERS = """
from torch import nn

class Sum(nn.Module):
    def __init__(self, hidden_size, keys=4):
        super().__init__()
        self.q, self.k = nn.Linear(hidden_size, keys), nn.Linear(hidden_size, keys)
        self.v = nn.Linear(hidden_size, hidden_size)
    def forward(self, x):
        return (self.q(x) @ self.k(x).mT).tril() @ self.v(x), None, None

class Half(Sum):
    def forward(self, x):
        return x[..., :2]
"""


def test_a_bare_mixer_gets_a_model_around_it(tmp_path):
    (tmp_path / "mixers.py").write_text(MIXERS)
    spec = parse_model({"kind": f"mixer:{tmp_path}/mixers.py:Sum", "width": 8, "keys": 3})
    model = rs.build_model(spec, 32, torch.Generator().manual_seed(0))
    model.check_batch(sample_batch(TASK, 2, 0))
    assert len(model.module.blocks) == 2
    assert model.module.blocks[0].mixer.k.out_features == 3
    assert model.module.blocks[0].conv.kernel_size == (3,)
    half = rs.build_model(spec.model_copy(update={"kind": f"mixer:{tmp_path}/mixers.py:Half"}), 32, torch.Generator())
    with pytest.raises(UserModuleError, match="batch, length, width"):
        half.check_batch(sample_batch(TASK, 2, 0))

# ruff: noqa: NPY002 (the global streams are what is tested)
"""What a user's module may do to us: draw from any global stream, and end the process."""

import contextlib
import random
import textwrap

import numpy as np
import pytest
import torch

from commands import Command
from recallscope.architectures.model import seeded_global_rng
from recallscope.architectures.user_module import user_module
from recallscope.specs import RunSpec, TrainSpec
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.train.loop import train_run

NOISY = """
import random, numpy as np, torch
class Model(torch.nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        start = torch.tensor(np.random.randn(vocab_size, 8), dtype=torch.float32) * random.random()
        self.table, self.out = torch.nn.Parameter(start), torch.nn.Linear(8, vocab_size)
    def forward(self, tokens):
        keep = 1 if not self.training else random.random() + np.random.rand()
        return self.out(self.table[tokens] * keep)
"""
LEAVES = """
import os, torch
class Stop(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x.clone()
    @staticmethod
    def backward(ctx, g): os._exit(0)
class Model(torch.nn.Module):
    def __init__(self, vocab_size, where):
        super().__init__()
        self.where, self.calls = where, 0
        self.emb, self.out = torch.nn.Embedding(vocab_size, 4), torch.nn.Linear(4, vocab_size)
        if where == "constructor": os._exit(0)
    def forward(self, tokens):
        self.calls += 1
        if self.where == "forward" and self.calls > 2: os._exit(0)
        if (child := os.fork()) == 0: os._exit(0)  # which is its right
        os.waitpid(child, 0)
        found = self.out(self.emb(tokens))
        return Stop.apply(found) if self.where == "backward" else found
"""
FEW = TrainSpec(batch_size=4, warmup_steps=1, flat_steps=3, decay_steps=2, eval_every=3, eval_size=8)


def test_numpys_and_pythons_streams_are_seeded_and_put_back(tmp_path):
    (tmp_path / "noisy.py").write_text(NOISY)
    run = RunSpec(task=MQARSpec(vocab_size=16, num_facts=2), model=user_module(f"{tmp_path}/noisy.py:Model"), train=FEW)
    results = []
    for seed in (0, 1):  # of the user's own stream: no matter to the run
        np.random.set_state(np.random.RandomState(seed).get_state())
        before = np.random.get_state()[1].tolist()
        results.append(train_run(run))
        assert np.random.get_state()[1].tolist() == before
    one, other = ({name: w.tolist() for name, w in found.model.state_dict().items()} for found in results)
    assert one == other
    assert results[0].record.history == results[1].record.history


def test_the_streams_are_put_back_even_after_an_error():
    def states():
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    before, drawn = states(), []
    for _ in range(2):
        with contextlib.suppress(ZeroDivisionError), seeded_global_rng(7):
            drawn.append((random.random(), np.random.rand(), float(torch.rand(()))))
            raise ZeroDivisionError
        assert states() == before
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("where", ["constructor", "forward", "backward"])
def test_a_module_that_ends_the_process_is_told_of(tmp_path, where):
    (tmp_path / "leaves.py").write_text(textwrap.dedent(LEAVES))
    sizes = ("--vocab-size", 16, "--num-facts", 2, "--batch-size", 4, "--warmup-steps", 1, "--flat-steps", 3)
    args = ("--model-args", f'{{"where": "{where}"}}', *sizes, "--decay-steps", 2, "--eval-size", 8, "--quiet")
    process = Command("train", "--model", "leaves.py:Model", *args, "--out", "out", cwd=tmp_path)
    assert process.wait() == 2, process.stderr
    assert "os._exit(0)" in process.stderr
    assert "leaves.py:Model" in process.stderr

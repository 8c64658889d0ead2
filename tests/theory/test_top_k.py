"""The right value among the k best: order statistics of the laws, and memories of explicit codes."""

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

import commands
from recallscope.predictions import prediction
from recallscope.theory.law import LAWS, find_law
from recallscope.theory.laws.sharing_step import among_best

THEORY = Path(__file__).resolve().parents[2] / "results" / "theory"
CELL = {"vocab_size": 128, "num_facts": 6, "embed_dim": 16, "state_dim": 4}
ABLE = [law.name for law in LAWS if law.top_k]
LARGEST = {"Hebb": 0.06, "delta, b = .2": 0.07, "least squares": 0.06}  # as of the best value alone


@pytest.fixture(scope="module")
def script():
    return commands.script("results/theory/top_k_monte_carlo.py")


@pytest.mark.parametrize("k", [1, 2, 5])
def test_many_competitors_exceed_as_a_poisson_number(k):
    """Against the binomial number of 255 that each exceed with a small chance."""
    chance = np.array([1e-4, 1e-3, 0.01, 0.02])
    np.testing.assert_allclose(among_best((1 - chance) ** 255, k), binom.cdf(k - 1, 255, chance), atol=0.01)


@pytest.mark.parametrize("name", ABLE)
def test_more_guesses_find_it_more_often(name):
    """From the law itself at k = 1, up to 1."""
    task = {"task": "template_ar"} if name.startswith("template") else {}
    p = [float(find_law(name)(**CELL, **task, top_k=k)) for k in (1, 2, 5, 63)]
    assert p[0] == pytest.approx(float(find_law(name)(**CELL, **task)), abs=2e-3)
    assert p[0] < p[1] < p[2] < p[3] + 1e-9
    assert p[3] > 0.998


def test_memories_of_explicit_codes_rank_as_the_law_says(script):
    for row in script.measure("write gate", (128, 8, 16, 8), seed=1):
        assert abs(row["error"]) < 0.03 + 4 * max(row["standard_error"], 0.003), row


def test_the_committed_errors_stay_within_what_is_stated():
    with (THEORY / "top_k_monte_carlo.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {int(row["k"]) for row in rows} == {1, 2, 5, 10}
    for row in rows:
        assert abs(float(row["error"])) < LARGEST.get(row["memory"], 0.03), row


def test_a_law_without_order_statistics_says_so():
    asked = {**CELL, "embed_dim": (16,), "state_dim": (4,), "task": "mqar", "length": None, "num_layers": 1}
    asked |= {"num_heads": 1, "head_pattern": None, "model": "mlstm", "designed": False, "law": ()}
    found = prediction(asked | {"top_k": 5})
    assert found["headline"]["law"] == "gated"
    assert found["headline"]["probability"] > prediction(asked)["headline"]["probability"]
    with pytest.raises(ValueError, match="only these laws"):
        prediction(asked | {"top_k": 5, "law": ("unified",)})
    with pytest.raises(ValueError, match="1 to 63 can be looked at"):
        prediction(asked | {"top_k": 64})

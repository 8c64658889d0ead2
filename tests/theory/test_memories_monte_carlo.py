"""Memories with explicit codes recall as often as their laws say; `results/theory/memories_monte_carlo.md` has more."""

import csv
from pathlib import Path

import numpy as np
import pytest

from commands import script

THEORY = Path(__file__).resolve().parents[2] / "results" / "theory"
LARGEST = {"Hebb": 0.05, "fading Hebb": 0.06, "delta, b = .2": 0.07, "delta, b = 1": 0.1, "least squares": 0.05}


@pytest.fixture(scope="module")
def played():
    return script("results/theory/memories_monte_carlo.py")


@pytest.mark.parametrize("memory", ["Hebb", "write gate", "delta, b = .05", "least squares", "two banks"])
def test_a_memory_recalls_as_its_law_says(played, memory):
    """Within the law's own error and four standard errors, twice: a fresh seed fails once in some thousand."""
    for row in played.measure(memory, 128, 6, 16, 4, draws=6, batch=40, seed=1):
        error = max(row["standard_error"], np.sqrt(row["measured"] * (1 - row["measured"]) / row["queries"]))
        assert abs(row["error"]) < LARGEST.get(memory, 0.03) + 4 * error, (memory, row)


def test_frames_are_tight_and_of_length_one(played):
    words = played.frame(np.random.default_rng(0), 6, 40)
    np.testing.assert_allclose(np.linalg.norm(words, axis=0), 1)
    np.testing.assert_allclose(words @ words.T, 40 / 6 * np.eye(6), atol=1e-3)


def test_the_committed_cells_are_what_the_laws_say_now():
    """Every cell within the largest error of its law, and none of the memories above the ceiling of all."""
    from recallscope.theory.law import find_law

    with (THEORY / "memories_monte_carlo.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        assert abs(float(row["error"])) < LARGEST.get(row["memory"], 0.03), row
    names = ("V", "N_f", "D", "N", "measured", "standard_error", "predicted")
    gated, solved = (
        {name: np.array([float(row[name]) for row in rows if row["memory"] == memory]) for name in names}
        for memory in ("write gate", "least squares")
    )
    tasks = np.array([row["task"] for row in rows if row["memory"] == "write gate"])
    for task in ("ar", "mqar"):
        here = {name: values[tasks == task] for name, values in gated.items()}
        sizes = {"vocab_size": here["V"], "num_facts": here["N_f"], "embed_dim": here["D"], "state_dim": here["N"]}
        np.testing.assert_allclose(find_law("gated")(**sizes, task=task), here["predicted"], atol=1e-3)
        ceiling = find_law("rank-bound")(**sizes)
        assert np.all(solved["measured"][tasks == task] < ceiling + 0.02)

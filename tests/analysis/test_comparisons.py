"""Laws against measurements, seeds against their luck, and which runs belong together."""

import numpy as np
import pytest

from recallscope.analysis.accuracy_grid import AccuracyGrid, convergence_by_best, convergence_grid
from recallscope.analysis.collapse import fit_group
from recallscope.analysis.compare import compare_laws
from recallscope.analysis.table import as_table, group_runs, learned
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.theory.law import LAWS, find_law

TASK = MQARSpec(vocab_size=128, num_facts=8)


def row(accuracy, D=16, N=4, seed=0, **sizes):
    fields = {"task": "mqar", "vocab_size": 128, "num_facts": 8, "length": 32, "model": "linear_mamba", "num_layers": 1}
    fields["batch_size"] = 32
    return fields | {"embed_dim": D, "state_dim": N, "seed": seed, "test_accuracy": accuracy} | sizes


def test_a_law_agrees_with_itself_and_comes_first():
    empty = AccuracyGrid.over({"embed_dim": [8, 16, 32], "state_dim": [4, 8, 16]}, TASK)
    measured = AccuracyGrid.from_law(find_law("trained"), empty)
    comparisons = compare_laws(measured)
    assert comparisons[0].law == "trained"
    assert comparisons[0].max_error == 0
    assert {c.law for c in comparisons} == {law.name for law in LAWS if not law.heads and "mqar" in law.tasks}
    designed = next(c for c in comparisons if c.law == "designed-exact")
    assert designed.left_out == 1  # N > D
    for c in comparisons:
        errors = np.array([cell.measured - cell.predicted for cell in c.cells])
        assert c.mean_error == pytest.approx(np.abs(errors).mean())
        assert c.max_error == pytest.approx(np.abs(errors).max())
        assert c.bias == pytest.approx(errors.mean())


def test_only_measured_cells_are_compared():
    grid = AccuracyGrid.from_runs(as_table([row(0.5, D=16, N=4), row(0.9, D=32, N=8)]))
    assert all(len(c.cells) + c.left_out == 2 for c in compare_laws(grid))
    assert compare_laws(grid)[0].cells[0].fields == {"embed_dim": 16, "state_dim": 4}


def test_laws_that_apply_nowhere_come_last():
    grid = AccuracyGrid.from_runs(as_table([row(0.5, D=4, N=8), row(0.6, D=4, N=16)]))
    comparisons = compare_laws(grid)
    assert comparisons[-1].cells == ()
    assert comparisons[0].cells != ()


def test_seeds_that_converge_are_counted_per_cell_and_by_the_cells_best():
    runs = [row(a, D=16, seed=s) for s, a in enumerate((0.95, 0.04, 0.99))]
    runs += [row(a, D=8, seed=s) for s, a in enumerate((0.05, 0.04))]
    runs = as_table(runs)
    grid = convergence_grid(runs)
    assert grid.accuracy[:, 0].tolist() == [0, pytest.approx(2 / 3)]
    bins = convergence_by_best(runs, bins=4)
    assert [(b.cells, b.seeds, b.converged) for b in bins] == [(1, 2, 0), (0, 0, 0), (0, 0, 0), (1, 3, 2)]
    assert bins[3].rate == pytest.approx(2 / 3)
    assert np.isnan(bins[1].rate)
    assert convergence_by_best(as_table([row(1.0)]), bins=10)[-1].cells == 1
    assert convergence_grid(runs, threshold=0.96).accuracy[1, 0] == pytest.approx(1 / 3)
    chance = as_table([row(0.25, warning="at-chance"), row(0.9, seed=1, warning="")])
    assert convergence_grid(chance).accuracy[0, 0] == 0.5, "0.25 is a guess among four facts"
    (group,) = group_runs(chance)
    assert "1 of 2 runs converged" in fit_group(group, [], bootstrap=0).sentences[1]


def test_a_seed_at_chance_counts_only_where_no_other_recalls():
    failed, fine = row(0.1, warning="at-chance"), row(0.9, seed=1, warning="")
    small = [row(0.1, N=1, seed=seed, warning="at-chance") for seed in range(2)]
    assert learned(as_table([failed, fine, *small])).index.tolist() == [1, 2, 3]
    assert len(learned(as_table([failed]))) == 1


def test_runs_are_split_by_task_model_and_training_and_only_so():
    runs = [row(0.5, D=D, N=N, seed=s) for D in (8, 16) for N in (2, 4) for s in (0, 1)]
    runs += [row(0.5, vocab_size=256), row(0.5, task="ar", length=17), row(0.5, batch_size=64), row(0.5, model="mamba")]
    found = group_runs(as_table(runs))
    assert [e.label for e in found] == [
        "AR V=128 linear_mamba batch_size=32",
        "MQAR V=128 linear_mamba batch_size=32",
        "MQAR V=128 linear_mamba batch_size=64",
        "MQAR V=128 mamba batch_size=32",
        "MQAR V=256 linear_mamba batch_size=32",
    ]
    assert len(found[1].table) == 8
    assert found[1].axes == ("embed_dim", "state_dim")


def test_a_length_is_an_axis_only_where_it_does_not_follow():
    follows = [row(0.5, num_facts=f, length=4 * f) for f in (4, 8)]
    free = [row(0.5, length=length) for length in (32, 64)]
    assert group_runs(as_table(follows))[0].axes == ("num_facts", "embed_dim", "state_dim")
    assert group_runs(as_table(free))[0].axes == ("embed_dim", "state_dim", "length")

"""One type for four roads: runs, laws and circuits end in the same grid."""

import numpy as np
import pytest

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.compare import law_on_cells
from recallscope.analysis.table import as_table
from recallscope.architectures.mamba import LinearMambaSpec, MultiHeadSpec
from recallscope.records import RunRecord
from recallscope.specs import RunSpec, flat_fields
from recallscope.studies.experiment import designed_rows
from recallscope.tasks.associative_recall import ARSpec, MQARSpec
from recallscope.theory.law import find_law
from recallscope.theory.reduction import head_bounds


def run(accuracy, D=8, N=4, seed=0, num_facts=4, **model):
    spec = RunSpec(
        task=MQARSpec(vocab_size=64, num_facts=num_facts),
        model=LinearMambaSpec(embed_dim=D, state_dim=N, **model),
        seed=seed,
    )
    return RunRecord(
        run=spec.content_hash(), spec=spec, test_accuracy=accuracy, val_accuracy=accuracy,
        test_queries=9, best_step=0, steps=0, seconds=0,
    )  # fmt: skip


RUNS = [
    run(0.2, D=8, N=2, seed=0), run(0.6, D=8, N=2, seed=1), run(0.04, D=8, N=2, seed=2),
    run(0.7, D=8, N=4, seed=0), run(1.0, D=16, N=2, seed=0), run(0.9, D=16, N=2, seed=1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("reduce", "seed", "expected", "counts"),
    [
        ("best", None, [[0.6, 0.7], [1.0, np.nan]], [[3, 1], [2, 0]]),
        ("mean", None, [[0.28, 0.7], [0.95, np.nan]], [[3, 1], [2, 0]]),
        ("seed", 1, [[0.6, np.nan], [0.9, np.nan]], [[1, 0], [1, 0]]),
        ("convergence", None, [[2 / 3, 1.0], [1.0, np.nan]], [[3, 1], [2, 0]]),
    ],
)
def test_seeds_are_put_together_as_asked(reduce, seed, expected, counts):
    grid = AccuracyGrid.from_runs(as_table(RUNS), reduce=reduce, seed=seed)
    assert dict(grid.axes) == {"embed_dim": (8, 16), "state_dim": (2, 4)}
    np.testing.assert_allclose(grid.accuracy, expected, equal_nan=True)
    np.testing.assert_array_equal(grid.counts, counts)
    assert grid.shared["vocab_size"] == 64
    assert "seed" not in grid.shared


def test_rows_of_the_index_serve_as_well_as_records():
    rows = [flat_fields(found.spec) | {"test_accuracy": found.test_accuracy, "num_heads": None} for found in RUNS]
    one, two = (AccuracyGrid.from_runs(as_table(runs)).accuracy for runs in (rows, RUNS))
    np.testing.assert_array_equal(one, two)


def test_words_that_follow_from_the_axes_are_kept_per_cell():
    grid = AccuracyGrid.from_runs(as_table(run(0.5, num_facts=f) for f in (2, 4, 8)), axes=("num_facts",))
    assert grid.cells["length"].tolist() == [8, 16, 32]
    assert "length" not in grid.shared


def test_runs_that_differ_in_more_than_the_seed_are_not_mixed():
    with pytest.raises(ValueError, match=r"embed_dim=8, state_dim=4 mixes runs with expand = 1 and 2"):
        AccuracyGrid.from_runs(as_table([run(0.5), run(0.6, expand=1)]))
    with pytest.raises(ValueError, match="embed_dim"):
        AccuracyGrid.from_runs(as_table(RUNS), axes=("embed_dm",))
    with pytest.raises(ValueError, match="no field of a linear_mamba model"):
        AccuracyGrid.from_runs(as_table(RUNS), axes=("num_heads",))


def test_a_law_on_a_grid_is_the_law_itself():
    D, N = [8, 16, 32], [4, 8, 16]
    grid = AccuracyGrid.over({"embed_dim": D, "state_dim": N}, MQARSpec(vocab_size=128, num_facts=8))
    fields = dict(zip(("embed_dim", "state_dim"), np.meshgrid(D, N, indexing="ij"), strict=True))
    for name in ("unified-mv", "trained", "designed-exact", "trained-sharing"):
        expected = find_law(name)(vocab_size=128, num_facts=8, **fields)
        np.testing.assert_array_equal(AccuracyGrid.from_law(find_law(name), grid).accuracy, expected)
    assert np.isnan(AccuracyGrid.from_law(find_law("designed-exact"), grid).accuracy[0, 2])


def test_laws_know_tasks_layers_and_heads():
    law = find_law("unified")
    ar = AccuracyGrid.over({"num_facts": [4, 8]}, ARSpec(vocab_size=128, num_facts=4), embed_dim=16, state_dim=4)
    expected = law(vocab_size=128, num_facts=np.array([4, 8]), embed_dim=16, state_dim=4, task="ar")
    np.testing.assert_array_equal(AccuracyGrid.from_law(law, ar).accuracy, expected)
    fields = {"task": "mqar", "vocab_size": 128, "num_facts": 8, "embed_dim": 32, "state_dim": 4}
    deep = law_on_cells(law, as_table([fields | {"num_layers": 3}, fields | {"state_dim": 12}]))
    assert deep[0] == deep[1]  # Thm 4.6
    spec = MultiHeadSpec(embed_dim=32, state_dim=4, num_heads=4, head_pattern="MQA")
    lower = head_bounds("MQA", 32, 4, 4).lower
    same = [fields | spec.model_dump(exclude={"kind"}), fields | {"embed_dim": float(lower.embed_dim)}]
    heads = law_on_cells(law, as_table(same))
    assert heads[0] == heads[1]  # Thm 4.7
    assert np.isnan(law_on_cells(law, as_table([fields | {"task": "repeated", "key_repeats": 2}]))).all()


def test_one_cell_a_law_refuses_does_not_cost_the_others():
    law = find_law("trained-sharing")
    fields = {"task": "mqar", "vocab_size": 128, "embed_dim": 32, "state_dim": 4}
    p = law_on_cells(law, as_table([fields | {"num_facts": 8}, fields | {"num_facts": 1}]))
    alone = law_on_cells(law, as_table([fields | {"num_facts": 8}]))
    assert p[0] == alone[0]


def test_designed_circuits_measured_agree_with_their_law():
    """800 sequences of 8 queries on two draws: standard error below .01, and the codes differ by as much."""
    task = MQARSpec(vocab_size=128, num_facts=8)
    rows = as_table(designed_rows(task, [16, 32], [8, 16, 24], seeds=(0, 1), num_sequences=800))
    grid = AccuracyGrid.from_circuits(rows)
    assert np.isnan(grid.accuracy[0, 2])  # N > D
    assert grid.counts.tolist() == [[2, 2, 0], [2, 2, 2]]
    predicted = AccuracyGrid.from_law(find_law("designed-improved"), grid)
    assert np.nanmax(np.abs(grid.accuracy - predicted.accuracy)) < 0.06

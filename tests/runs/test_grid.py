"""A grid is what its axes, groups, formulas and rules say; each run once."""

import itertools
import tracemalloc
from pathlib import Path

import pytest
from tiny_sweeps import tiny_grid, tiny_run

from recallscope.runs import plan as plan_module
from recallscope.runs.grid import Grid, grid_from_fields, read_grid
from recallscope.runs.plan import estimated_cost, make_plan
from recallscope.runs.store import RunStore
from recallscope.specs import flat_fields

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def sizes(grid, *names):
    return [tuple(cell.fields[name] for name in names) for cell in grid.cells()]


def test_axes_are_crossed_and_rules_leave_cells_out():
    grid = Grid.around(tiny_run(), axes={"embed_dim": [4, 8], "state_dim": [2, 6]}, skip=["state_dim > embed_dim"])
    assert sizes(grid, "embed_dim", "state_dim") == [(4, 2), (8, 2), (8, 6)]
    assert grid.size == 4


def test_zipped_fields_walk_together_and_cross_with_the_rest():
    grid = Grid.around(tiny_run(), axes={"seed": [0, 1]}, zipped=[{"num_facts": [2, 4], "vocab_size": [16, 64]}])
    expected = list(itertools.product([0, 1], [(2, 16), (4, 64)]))
    assert sizes(grid, "seed", "num_facts", "vocab_size") == [(s, f, v) for s, (f, v) in expected]


def test_derived_fields_follow_whatever_their_order():
    """N = 60 / Lambda at constant Lambda N (App. I.2), and a length from a length's formula."""
    grid = Grid.around(
        tiny_run(),
        axes={"num_layers": [1, 2, 3, 7]},
        derived={"length": "4 * num_facts", "num_facts": "max(2, 12 // num_layers)", "state_dim": "60 / num_layers"},
        skip=["60 % num_layers"],
    )
    assert sizes(grid, "num_layers", "state_dim", "num_facts", "length") == [
        (1, 60, 12, 48),
        (2, 30, 6, 24),
        (3, 20, 4, 16),
    ]


def test_what_stands_where_it_follows_keeps_following():
    grid = Grid.around(tiny_run(), axes={"num_facts": [2, 4], "num_layers": [1, 2]})
    for cell in grid.cells():
        assert cell.spec.task.length == 4 * cell.spec.task.num_facts
        assert cell.spec.model.residual == (cell.spec.model.num_layers > 1)
    fixed = Grid.around(
        tiny_run().model_copy(update={"task": tiny_run().task.model_copy(update={"length": 40})}),
        axes={"num_facts": [2, 4]},
    )
    assert {cell.spec.task.length for cell in fixed.cells()} == {40}


def test_equal_runs_are_one_cell():
    grid = Grid.around(tiny_run(), axes={"state_dim": [3, 5]}, derived={"embed_dim": "8"})
    doubled = Grid.around(
        tiny_run(), axes={"num_layers": [2, 3]}, derived={"num_facts": "num_layers // 2 * 4", "state_dim": "4"}
    )
    assert len(grid.cells()) == 2
    assert len({cell.run for cell in doubled.cells()}) == len(doubled.cells()) == 2


def test_the_axes_may_change_the_kind_of_model():
    grid = grid_from_fields(
        {
            "task": {"vocab_size": 32, "num_facts": 4},
            "model": {"embed_dim": 8},
            "axes": {"model": ["linear_mamba", "mamba"], "state_dim": [2, 4]},
            "skip": "model == 'mamba' and state_dim == 2",
        }
    )
    assert sizes(grid, "model", "state_dim") == [("linear_mamba", 2), ("linear_mamba", 4), ("mamba", 4)]


def test_a_preset_is_a_base():
    grid = grid_from_fields(
        {"preset": "dn-linear", "train": {"batch_size": 32}, "axes": {"embed_dim": {"from": 16, "to": 64, "step": 16}}}
    )
    (first, *_), sizes_found = grid.cells(), sizes(grid, "embed_dim")
    assert sizes_found == [(16,), (32,), (48,), (64,)]
    assert first.spec.task.vocab_size == 512
    assert first.spec.train.batch_size == 32


def test_the_documented_example_has_24_runs():
    grid = read_grid(EXAMPLES / "tiny_grid.toml")
    assert len(grid.cells()) == 24
    assert all(cell.spec.task.length == 4 * cell.spec.task.num_facts for cell in grid.cells())


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"axes": {"embed_dm": [1]}}, "embed_dim"),
        ({"axs": {}}, "axes"),
        ({"axes": {"embed_dim": []}}, "no values"),
        ({"axes": {"embed_dim": 8}}, "a list is needed"),
        ({"axes": {"embed_dim": {"from": 1}}}, "a list is needed"),
        ({"axes": {"embed_dim": {"from": 0, "to": 10**18}}}, "more than"),
        ({"axes": {"embed_dim": [[1]]}}, "plain values"),
        ({"axes": {"embed_dim": list(range(1, 2000)), "state_dim": list(range(1, 2000))}}, "cells"),
        ({"axes": {"embed_dim": [8, -8]}}, "embed_dim=-8"),
        ({"axes": {"seed": [0.5]}}, "seed=0.5"),
        ({"axes": 3}, "a table is needed"),
        ({"zip": {"seed": [0, 1], "num_facts": [2]}}, "as many values"),
        ({"zip": 3}, "zip is a table"),
        ({"axes": {"seed": [0]}, "derived": {"seed": "1"}}, "one source"),
        ({"derived": {"state_dim": "embed_dim", "embed_dim": "state_dim"}}, "circle"),
        ({"derived": {"state_dim": "60 / 7"}}, "state_dim=8.57"),
        ({"derived": {"state_dim": 3}}, "texts"),
        ({"derived": {"state_dim": "nonsense"}}, "not a field of a run"),
        ({"skip": [3]}, "rules are texts"),
        ({"skip": ["state_dim >"]}, "not a formula"),
        ({"preset": "dn-liner"}, "dn-linear"),
        ({"task": {"vocab_size": 31, "num_facts": 4}}, "odd"),
        ({"train": {"batchsize": 31}}, "batchsize"),
        ({"name": 3}, "name=3"),
        ({"seed": "x"}, "seed='x': it must be a whole number"),
    ],
)
def test_mistakes_are_answered_with_the_way_out(fields, says):
    base = {
        "task": {"vocab_size": 32, "num_facts": 4},
        "model": {"kind": "linear_mamba", "embed_dim": 8, "state_dim": 4},
    }
    with pytest.raises(ValueError, match=says):
        grid_from_fields(base | fields).cells()


def test_costs_grow_with_what_makes_runs_long():
    base = tiny_run(flat_steps=1000)

    def cost(part, **changes):
        fields = base.model_dump()
        fields[part] |= changes
        if part == "task":
            fields[part]["length"] = None
        return estimated_cost(type(base).model_validate(fields))

    assert cost("train", flat_steps=2000) > estimated_cost(base)
    assert cost("train", batch_size=16) > estimated_cost(base)
    assert cost("model", embed_dim=16) > estimated_cost(base)
    assert cost("model", state_dim=8) > estimated_cost(base)
    assert cost("model", num_layers=2, residual=True) > estimated_cost(base)
    assert cost("task", num_facts=8) > estimated_cost(base)
    assert cost("task", vocab_size=64) > estimated_cost(base)


def test_the_tests_own_grid_is_as_large_as_they_think():
    assert len(tiny_grid(seeds=4).cells()) == 20


def test_cells_share_their_parts_and_have_the_names_of_their_runs():
    """A cell's name is put together from its parts' identities: the same as the plain way, from the whole run."""
    grid = Grid.around(
        tiny_run(),
        axes={"embed_dim": [8, 12], "learning_rate": [1, 0.01], "seed": [0, 1]},
        derived={"state_dim": "embed_dim / 2", "num_facts": "embed_dim / 4"},
    )
    cells = grid.cells()
    assert len(cells) == 8
    for cell in cells:
        assert cell.run == cell.spec.content_hash()
        fields = flat_fields(cell.spec)
        assert cell.fields == {name: fields[name] for name in grid.varied}
    assert len({id(part) for cell in cells for part in cell.parts}) == 2 + 2 + 2  # tasks, models, ways to train


def test_a_large_grid_needs_little_memory():
    """Under 1 kB per cell, names and words included; a cell with a spec of its own took 4 kB."""
    grid = Grid.around(tiny_run(), axes={"embed_dim": [*range(8, 28)], "seed": [*range(100)]})
    tracemalloc.start()
    plan = make_plan(grid.cells(), None)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert plan.total == 2000
    assert held / plan.total < 1000


def test_a_grid_that_would_take_minutes_to_plan_is_refused_and_the_largest_opens_no_file(tmp_path, monkeypatch):
    axes = {"embed_dim": range(8, 108), "state_dim": range(1, 6), "seed": range(2000)}
    with pytest.raises(ValueError, match="1,000,000 cells: at most 200,000 are taken"):
        Grid.around(tiny_run(), axes={name: list(values) for name, values in axes.items()})
    store = RunStore(tmp_path / "store", create=True)
    store.folder(tiny_run().content_hash()).mkdir()  # one run is begun; nothing is known of the others
    looked, real = [], plan_module.estimated_cost
    monkeypatch.setattr(store, "get_sound", lambda run, **_: looked.append(run) or (None, None))
    monkeypatch.setattr(plan_module, "estimated_cost", lambda run: looked.append("cost") or real(run))
    cells = Grid.around(tiny_run(), axes={"seed": list(range(300))}).cells()
    assert len(plan_module.make_plan(cells, store).missing) == 300
    assert sorted(looked) == [tiny_run().content_hash(), "cost"]

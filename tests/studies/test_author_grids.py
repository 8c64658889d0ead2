"""Grids in the layout of the authors' repository, written here: read, compared, and refused where damaged."""

import json

import numpy as np
import pytest

from recallscope.studies.other_groups import FAMILIES, compare_files, read_grid
from recallscope.theory.law import find_law

LINEAR = "MQAR__D_N__linear_trained__regime_1"


def write(folder, family, accuracy, split="val"):
    path = folder / family / "mamba_tiny_simplified__D_N_V512_L128_Nf32__28_08_2026__19_57_28"
    path = path / f"accuracy_grid__{split}.npy"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, accuracy)
    return path


def law_grid(family, law):
    """[x, y]: what a law predicts on the axes of a family; nan where N > D, as in the authors' files."""
    axes = {name: np.array(values) for name, values in FAMILIES[family].axes.items()}
    x, y = np.meshgrid(*axes.values(), indexing="ij")
    found = find_law(law)(**FAMILIES[family].shared, **dict(zip(axes, (x, y), strict=True)))
    return np.where(y > x, np.nan, found) if list(axes) == ["embed_dim", "state_dim"] else found


def test_a_grid_made_by_a_law_is_that_laws(tmp_path):
    """Largest of the seeds: the law itself, and two seeds below it."""
    truth = law_grid(LINEAR, "unified-mv")
    write(tmp_path, LINEAR, np.stack([truth * 0.9, truth, truth * 0.5]))
    (found,) = compare_files(tmp_path)
    assert found.settings == np.isfinite(truth).sum()
    assert (found.laws[0].law, found.laws[0].mean_error) == ("unified-mv", 0)
    mean = next(compare_files(tmp_path, over="mean"))
    by_name = {law.law: law for law in mean.laws}
    assert by_name["unified-mv"].bias == pytest.approx(-0.2 * np.nanmean(truth))


def test_axes_that_descend_are_read_as_they_are(tmp_path):
    """The vocabulary falls from 50,000 to 1,002, and the facts from 1,000 to 250."""
    family = "MQAR__V_L__linear_trained"
    axes = FAMILIES[family].axes
    assert (axes["vocab_size"][0], axes["vocab_size"][-1], axes["num_facts"]) == (50000, 1002, (1000, 750, 500, 250))
    accuracy = np.full((1, 10, 4), np.nan)
    accuracy[0, 9, 3] = 0.7
    grid = read_grid(write(tmp_path, family, accuracy)).grid()
    assert np.argwhere(~np.isnan(grid.accuracy)).tolist() == [[9, 3]]
    assert grid.accuracy[9, 3] == 0.7


@pytest.mark.parametrize(
    ("accuracy", "sentence"),
    [
        (np.zeros((3, 31, 32)), "seeds x 32 embed_dim x 31 state_dim"),
        (np.full((1, 32, 31), 1.5), "outside of 0 to 1"),
        (np.array([[{"a": 1}]], object), "Arrays of objects are never read"),
    ],
)
def test_a_file_that_is_not_such_a_grid_is_refused(tmp_path, accuracy, sentence):
    path = tmp_path / LINEAR / "run" / "accuracy_grid__val.npy"
    path.parent.mkdir(parents=True)
    np.save(path, accuracy, allow_pickle=True)
    with pytest.raises(ValueError, match=sentence):
        read_grid(path)


def test_the_command_prints_each_file_and_names_what_it_leaves_out(tmp_path, run):
    write(tmp_path, LINEAR, law_grid(LINEAR, "trained-sharing"))
    write(tmp_path, "MQAR__Lambda_Nk__linear_trained", np.zeros((3, 5, 5)))
    code, out, err = run("compare-grids", tmp_path)
    assert code == 0
    assert f"{LINEAR}  {sum(min(D, 32) - 1 for D in range(2, 65, 2))} settings, best of 1 seeds" in out
    assert "1 files left out, as no law applies to their family, MQAR__Lambda_Nk__linear_trained first" in err
    printed = json.loads(run("compare-grids", tmp_path, "--json")[1])
    assert printed["files"][0]["laws"][0] == {
        "law": "trained-sharing", "mean_error": 0.0, "max_error": 0.0, "bias": 0.0, "left_out": 0,
    }  # fmt: skip
    code, _, err = run("compare-grids", tmp_path, "--split", "test")
    assert code == 2
    assert "accuracy_grid__test.npy" in err

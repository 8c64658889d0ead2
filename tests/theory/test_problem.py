"""The question put to a law: sizes broadcast together, mistakes are named, runs become problems."""

import numpy as np
import pytest

from recallscope.theory.problem import FIELDS, Problem, takes_fields

CELL = {"vocab_size": 512, "num_facts": 16, "embed_dim": 32, "state_dim": 8}


def test_letters_are_float_arrays_of_one_shape():
    problem = Problem(vocab_size=[[64], [512]], num_facts=4, embed_dim=[8, 16, 32], state_dim=2.5)
    assert problem.shape == (2, 3)
    for letter in (problem.V, problem.N_f, problem.D, problem.N, problem.L, problem.G):
        assert letter.shape == (2, 3)
        assert letter.dtype == float
    assert problem.N[0, 0] == 2.5
    assert problem.Lambda == problem.M == 1
    assert Problem(**CELL).V.shape == ()
    assert Problem(**CELL, num_layers=[1, 2]).shape == (2,)


def test_the_length_follows_from_the_facts():
    assert Problem(**CELL).L == 64
    assert Problem(**CELL).G == 16
    assert Problem(**CELL, length=128).G == 48
    ar = Problem(**CELL, task="ar")
    assert (ar.L, ar.G) == (33, 1)
    assert Problem(**CELL, task="ar", length=33).replace(num_facts=4).L == 9


def test_letters_are_copies():
    D = np.array([8.0, 16.0])
    problem = Problem(**CELL | {"embed_dim": D})
    D[:] = 1
    assert problem.D.tolist() == [8, 16]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"task": "repeated"}, r"task='repeated': the recall laws are stated for 'ar' and 'mqar'"),
        ({"vocab_size": 1}, "vocab_size=1 is below 2.*Use vocab_size >= 2"),
        ({"num_facts": 0}, "num_facts=0 is below 1"),
        ({"embed_dim": [4, 0.5]}, "embed_dim=0.5 is below 1"),
        ({"state_dim": -1}, "state_dim=-1 is below 1"),
        ({"num_layers": 0}, "num_layers=0 is below 1"),
        ({"num_heads": 0}, "at least one head"),
        ({"state_dim": np.nan}, "state_dim=nan: a finite number"),
        ({"vocab_size": np.inf}, "vocab_size=inf: a finite number"),
        ({"length": 60}, "length=60 is shorter than 4 num_facts = 64"),
        ({"task": "ar", "length": 64}, "length=64 does not fit task='ar'"),
        ({"head_pattern": "GQA"}, "the patterns are MHA, MQA, MKA and MVA"),
        ({"embed_dim": [1, 2], "state_dim": [1, 2, 3]}, "shape mismatch"),
    ],
)
def test_mistakes_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        Problem(**CELL | wrong)


def test_a_size_that_was_left_out_is_named_when_it_is_needed():
    problem = Problem(vocab_size=512, length=64)
    assert problem.L == 64
    for letter, name in (("D", "embed_dim"), ("N", "state_dim"), ("N_f", "num_facts")):
        with pytest.raises(ValueError, match=f"{name} is not given"):
            getattr(problem, letter)
    with pytest.raises(ValueError, match="num_facts is not given"):
        _ = Problem(vocab_size=512).L
    with pytest.raises(AttributeError, match="no attribute 'lambda'"):
        getattr(problem, "lambda")


def test_fields_of_a_run_become_a_problem():
    run = {"task": "mqar", "length": 128, "model": "linear_mamba", "seed": 3, "num_layers": None, "test_accuracy": 0.5}
    run |= CELL
    problem = Problem.from_fields(run)
    assert (problem.L, problem.num_layers, problem.head_pattern) == (128, 1, None)
    assert set(problem.fields) < set(FIELDS)
    ar = Problem.from_fields(run | {"task": "ar"})  # whatever length the run has: it follows
    assert ar.L == 33


def test_replace_changes_some_fields_and_broadcasts_anew():
    problem = Problem(**CELL).replace(state_dim=[1, 2, 3], length=80)
    assert problem.V.shape == (3,)
    assert problem.replace(state_dim=[[4], [5]]).shape == (2, 1)
    assert problem.L[0] == 80
    assert problem.replace(length=None).L[0] == 64


def test_take_picks_entries():
    problem = Problem(**CELL | {"embed_dim": [[8], [16]], "state_dim": [1, 2, 4]}, num_heads=[1, 2, 3])
    part = problem.take(problem.D > 8)
    assert part.shape == (3,)
    assert part.N.tolist() == [1, 2, 4]
    assert part.M.tolist() == [1, 2, 3]
    assert part.replace(num_facts=2).L.tolist() == [8, 8, 8]
    assert problem.take(np.array([1, 1])).D.shape == (2, 3)
    assert problem.take((1, 2)).shape == ()
    assert Problem(**CELL).take(np.array(True)).shape == (1,)


def test_functions_of_a_problem_take_fields_too():
    @takes_fields
    def product(problem, *, factor=1.0):
        return factor * problem.N * problem.D

    assert product(**CELL) == product(Problem(**CELL)) == 256
    assert product(Problem(**CELL), factor=2, state_dim=4) == 256
    with pytest.raises(TypeError, match="sides"):
        product(**CELL, sides=3)

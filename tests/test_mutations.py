"""The bounds of `closeness.py` are not too wide: every mistake in `mutations.py` fails a fast test."""

import pytest

from mutations import MUTATIONS, Mutation, first_failure


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("mutated")


def test_every_mistake_is_one_place_in_the_source() -> None:
    assert all(mutation.line for mutation in MUTATIONS)


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.path}: {mutation.wrong}")
def test_a_fast_test_finds_it(mutation: Mutation, folder) -> None:
    assert first_failure(mutation, folder) is not None

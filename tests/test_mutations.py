"""The bounds of `closeness.py` are not too wide: every mistake in `mutations.py` fails a fast test."""

import subprocess
import sys

import pytest

import mutations


def test_every_mistake_is_one_place_in_the_source() -> None:
    assert all(mutation.line and mutation.key for mutation in mutations.MUTATIONS)


@pytest.mark.slow
@pytest.mark.parametrize("path", dict.fromkeys(mutation.path for mutation in mutations.MUTATIONS))
def test_a_fast_test_finds_each_mistake(path: str) -> None:
    done = subprocess.run([sys.executable, mutations.__file__, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

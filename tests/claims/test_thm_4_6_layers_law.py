"""Thm 4.6: recall depends on the effective state Lambda N only."""

import numpy as np
import pytest

from recallscope.theory.law import find_law
from recallscope.theory.reduction import effective_state

FIELDS = {"vocab_size": 512, "num_facts": 16, "embed_dim": 64}


@pytest.mark.parametrize("name", ["unified", "unified-mv", "trained", "trained-sharing", "designed-exact"])
def test_recall_depends_on_layers_times_state_only(name):
    law = find_law(name)
    p = [float(law(**FIELDS, state_dim=N, num_layers=layers)) for N, layers in [(12, 1), (6, 2), (4, 3), (3, 4)]]
    np.testing.assert_allclose(p, p[0], atol=1e-12)
    assert law(**FIELDS, state_dim=12) == p[0]


def test_effective_state():
    """Departs: beyond rank D more layers bring nothing; and only jointly orthonormal hashes reach Lambda N."""
    assert effective_state(6, 64, 2, hashes="printed") == 12
    assert effective_state(40, 64, 2) == 64
    assert effective_state(40, 64, 2, hashes="printed") == 80
    assert effective_state(80, 64, 1) == 80
    np.testing.assert_allclose(1 / effective_state(8, 64, 4, hashes="independent"), 1 / 32 + 0.75 / 64)
    N = np.arange(1, 16)
    assert np.all(effective_state(N, 64, 4, hashes="independent") <= effective_state(N, 64, 4))

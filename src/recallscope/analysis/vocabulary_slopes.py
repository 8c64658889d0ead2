"""How fast recall falls with the vocabulary: slopes of the normal inverse of accuracy against m_V.

Paper: App. A.2 (`app-subsec:large-vocab`), Fig. 12 (`app-fig:large-vocab-curves`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from recallscope.analysis.accuracy_grid import Row, group_cells, reducer
from recallscope.theory.extremes import typical_max

FEWEST = 2  # points of a line


@dataclass(frozen=True, eq=False)
class VocabularySlope:
    """One length: Phi^-1(p) = intercept - slope m_V by least squares; the law says slope 1.

    Cells with accuracy 0 or 1 have no normal inverse: they are in `accuracy`, and nan in `normal_inverse`.
    """

    length: int
    vocab_sizes: NDArray[np.int64]
    accuracy: NDArray[np.float64]
    typical_max: NDArray[np.float64]  # m_V
    normal_inverse: NDArray[np.float64]
    slope: float  # nan with fewer than two points
    slope_error: float  # standard error; nan with fewer than three
    intercept: float


def vocabulary_slopes(rows: Sequence[Row]) -> list[VocabularySlope]:
    """The best of seeds per V and L, and a line for each L.

    Paper: Rem 4.3 (`rem:practical-scaling-law`) with m_V of Eq. label `app-eq:m-V`.
    """
    best = reducer("best")
    cells = {
        (int(members[0]["length"]), int(members[0]["vocab_size"])): best(
            np.array([row["test_accuracy"] for row in members], float)
        )
        for members in group_cells(rows, ("vocab_size", "length")).values()
    }
    found = []
    for L in sorted({length for length, _ in cells}):
        V = np.array(sorted(vocab for length, vocab in cells if length == L), int)
        p = np.array([cells[L, vocab] for vocab in V.tolist()])
        m = np.asarray(typical_max(V))
        z = np.where((p > 0) & (p < 1), ndtri(p), np.nan)
        found.append(VocabularySlope(L, V, p, m, z, *_line(m, z)))
    return found


def _line(m: NDArray[np.float64], z: NDArray[np.float64]) -> tuple[float, float, float]:
    """Slope (falling is positive), its standard error, and intercept."""
    m, z = m[~np.isnan(z)], z[~np.isnan(z)]
    if len(m) < FEWEST:
        return np.nan, np.nan, np.nan
    across = m - m.mean()
    slope = float(across @ z / (across @ across))
    intercept = float(z.mean() - slope * m.mean())
    rest = z - intercept - slope * m
    error = float(np.sqrt(rest @ rest / (len(m) - 2) / (across @ across))) if len(m) > FEWEST else float("nan")
    return -slope, error, intercept

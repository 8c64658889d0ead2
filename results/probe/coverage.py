"""How often does the interval of n_50 hold the true one? Simulated probes of known curves, with the probe's own search.

python results/probe/coverage.py [RUNS]   about three minutes of one core for 500 runs of each curve; no torch

A run draws contexts as the probe does, queries included that are added near the crossing, from a curve whose n_50 is
known. Contexts of "uneven" rows differ: the log-odds of each are shifted by a normal number of that standard deviation, as
if some lists of words were harder than others. Writes coverage.json.
"""

import json
import math
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit, ndtr

from recallscope.atomic import write_atomically
from recallscope.measuring.checkpoints.asking import contexts_for, queries_of
from recallscope.measuring.checkpoints.capacity import find_crossing, search
from recallscope.measuring.checkpoints.curves import PERCENTILES
from recallscope.measuring.checkpoints.record import Point

HERE = Path(__file__).resolve().parent
DEFAULTS = {"max_facts": 256, "min_recall": 0.3, "width": 1.4, "max_queries": 2048}  # those of the probe
NUM_SEQUENCES = 4
RUNS = 500
UNEVEN, UNEVEN_HELD_OUT = (0.0, 0.5), (0.0, 0.7)
NODES = np.log([2, 4, 8, 16, 32, 64, 128, 256])


def measured_start(n: float) -> float:
    """A transformer's recall in bare lines, as first measured: it rises from 2 to 4 facts, then falls slowly."""
    return float(np.interp(np.log(n), NODES, [0.50, 0.70, 0.64, 0.59, 0.41, 0.39, 0.32, 0.18]))


CURVES: dict[str, Callable[[float], float]] = {
    "the law's: Phi(11 / sqrt n - 2)": lambda n: float(ndtr(11 / math.sqrt(n) - 2)),
    "forgetting: 8 / n": lambda n: min(1.0, 8 / n),
    "rises first: 0.50, 0.70, 0.64, ...": measured_start,
    "rises first, smooth": lambda n: 0.9 * math.exp(-n / 60) * (1 - 0.5 * math.exp(-n / 2)),
}
HELD_OUT: dict[str, Callable[[float], float]] = {
    "logistic: 1 / (1 + (n / 20)^1.3)": lambda n: 1 / (1 + (n / 20) ** 1.3),
    "exponential: exp(-n / 58)": lambda n: math.exp(-n / 58),
    "slow: 1 / sqrt(1 + n / 6)": lambda n: (1 + n / 6) ** -0.5,
    "plateau, then a cliff: 0.97 min(1, (40 / n)^3)": lambda n: 0.97 * min(1.0, (40 / n) ** 3),
    "low and flat: 0.65 exp(-log2(n / 6)^2 / 18)": lambda n: 0.65 * math.exp(-(math.log2(n / 6) ** 2) / 18),
}


def simulated(curve: Callable[[float], float], uneven: float, rng: np.random.Generator) -> list[Point]:
    """The points of one probe."""
    correct: dict[int, list[int]] = {}
    spread = math.sqrt(1 + uneven**2 / 2.9)  # keeps the mean of shifted contexts at the curve, nearly

    def measure(n: int) -> Point:
        q, contexts = queries_of(n), contexts_for(n, NUM_SEQUENCES)
        shares = expit(spread * logit(curve(n)) + uneven * rng.normal(size=contexts))
        correct.setdefault(n, []).extend(rng.binomial(q, shares).tolist())
        return point(n, correct[n])

    return search(measure, rng=rng, **DEFAULTS)


def point(n: int, correct: list[int]) -> Point:
    """A point with these counts and nothing else."""
    queries = queries_of(n) * len(correct)
    facts = dict.fromkeys(Point.model_fields, 0) | {"by_place": [], "interval": (0, 0)}
    counts = {"correct_per_context": list(correct), "greedy_per_context": list(correct)}
    sizes = {"num_facts": n, "contexts": len(correct), "queries": queries, "recall": sum(correct) / queries}
    return Point(**facts | counts | sizes)


def coverage(name: str, uneven: float, runs: int) -> dict[str, object]:
    """One row of the table."""
    curve, number = (CURVES | HELD_OUT)[name], [*CURVES, *HELD_OUT].index(name)
    rng = np.random.default_rng([number, int(10 * uneven)])
    truth = brentq(lambda n: curve(n) - 0.5, 4.5, 250)
    found, queries = [], []
    for _ in range(runs):
        points = simulated(curve, uneven, rng)
        queries.append(sum(one.queries for one in points))
        found.append(find_crossing(points, "correct", 0.5, rng))
    low, high = np.array([
        (one.interval[0] or -np.inf, one.interval[1] or np.inf) for one in found
    ], float).T  # fmt: skip
    numbers = np.array([one.num_facts or np.nan for one in found], float)
    between = np.array([one.interpolated or np.nan for one in found], float)
    return {
        "curve": name, "held_out": name in HELD_OUT, "uneven": uneven, "n_50": truth, "runs": runs,
        "covered": float(((low <= truth) & (truth <= high)).mean()),
        "above": float((truth < low).mean()), "below": float((truth > high).mean()),
        "median_factor": float(np.median(high / low)), "bias": float(np.nanmean(np.log(numbers / truth))),
        "interpolated_inside": float(((low <= between) & (between <= high)).mean()),
        "queries": float(np.mean(queries)),
    }  # fmt: skip


def main(runs: int) -> None:
    """Every curve, even and uneven. Rows that are in the file, made with as many runs and this interval, stay."""
    path, how = HERE / "coverage.json", DEFAULTS | {"percentiles": PERCENTILES, "num_sequences": NUM_SEQUENCES}
    before = json.loads(path.read_text()) if path.exists() else {}
    rows = before["rows"] if before.get("probe") == json.loads(json.dumps(how)) else []
    rows = [row for row in rows if row["runs"] == runs]
    there = {(row["curve"], row["uneven"]) for row in rows}
    for setting in (*product(CURVES, UNEVEN), *product(HELD_OUT, UNEVEN_HELD_OUT)):
        if setting not in there:
            rows.append(coverage(*setting, runs))
            print(json.dumps(rows[-1]), flush=True)
            write_atomically(path, json.dumps({"probe": how, "rows": rows}, indent=1).encode() + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)

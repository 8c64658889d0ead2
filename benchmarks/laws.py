"""How long a law takes on the paper's 32 x 31 D-N grid (V=512, N_f=16, MQAR), one thread, in seconds of CPU.

A law with a quick form is timed against its exact one in the same run, and the largest difference is shown; with heads
it gets four of them that share values (MQA).

python benchmarks/laws.py [--json]
"""

import argparse
import json
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from recallscope.theory.law import LAWS

# seconds on the grid
LIMITS = {"unified": 0.005, "designed-improved": 1.0, "trained-sharing": 1.0, "trained-sharing-heads": 1.0}
LIMITS |= dict.fromkeys(("gated", "retention", "delta", "least-squares", "rank-bound", "softmax"), 5.0)
LIMITS |= dict.fromkeys(("full-nd", "full-bank", "full-mask"), 5.0)


def best_of(run: Callable[[], Any]) -> tuple[float, Any]:
    """The least CPU time of one run, or of several quick ones, and what came out."""
    times: list[float] = []
    while not times or (sum(times) < 0.5 and len(times) < 20):
        started = time.process_time()
        with np.errstate(all="ignore"):
            result = run()
        times.append(time.process_time() - started)
    return min(times), result


def main() -> None:
    """Time every law of the catalogue; those with a quick form in both forms."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    D, N = np.meshgrid(np.arange(2, 66, 2), np.arange(2, 33), indexing="ij")
    rows: dict[str, dict[str, float]] = {}
    for law in (law for law in LAWS if law.tolerance or not law.heads):
        words: dict[str, Any] = {"vocab_size": 512, "num_facts": 16, "embed_dim": D, "state_dim": N}
        words |= {"num_heads": 4, "head_pattern": "MQA"} if law.heads else {}
        seconds, p = best_of(lambda law=law, words=words: law(**words))
        rows[law.name] = {"seconds": seconds}
        if law.tolerance:
            started = time.process_time()
            exact = law(**words, exact=True)
            ratio = (time.process_time() - started) / seconds
            rows[law.name] |= {"times_faster": ratio, "largest_difference": float(np.abs(p - exact).max())}
    if arguments.json:
        print(json.dumps({"cells": D.size, "laws": rows, "load": os.getloadavg()[0]}))
        return
    print(f"{D.size} cells; load of the machine {os.getloadavg()[0]:.1f}")
    for name, row in rows.items():
        limit = f"   (limit {LIMITS[name] * 1e3:g} ms)" if name in LIMITS else ""
        print(f"{name:26}{row['seconds'] * 1e3:12.2f} ms{limit}", end="")
        has_twin = "times_faster" in row
        print(
            "   {times_faster:.0f} x as fast as exact, {largest_difference:.1e} off".format(**row) if has_twin else ""
        )


if __name__ == "__main__":
    main()

"""How long a law takes on the paper's 32 x 31 D-N grid (V=512, N_f=16, MQAR), one thread.

python benchmarks/laws.py [--json]
"""

import argparse
import json
import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import time

import numpy as np

from recallscope.theory.law import LAWS

LIMITS = {"unified": 0.005, "designed-improved": 20.0, "trained-sharing": 20.0}  # seconds
LIMITS |= dict.fromkeys(("gated", "retention", "delta", "least-squares", "rank-bound", "softmax"), 5.0)
LIMITS |= dict.fromkeys(("full-nd", "full-bank", "full-mask"), 5.0)


def main() -> None:
    """Time every law of the catalogue; the best of several runs for the quick ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    D, N = np.meshgrid(np.arange(2, 66, 2), np.arange(2, 33), indexing="ij")
    seconds = {}
    for law in (law for law in LAWS if not law.heads):
        times = []
        while len(times) < 1 or (sum(times) < 0.5 and len(times) < 20):
            started = time.perf_counter()
            with np.errstate(all="ignore"):
                law(vocab_size=512, num_facts=16, embed_dim=D, state_dim=N)
            times.append(time.perf_counter() - started)
        seconds[law.name] = min(times)
    if arguments.json:
        print(json.dumps({"cells": D.size, "seconds": seconds, "load": os.getloadavg()[0]}))
        return
    print(f"{D.size} cells; load of the machine {os.getloadavg()[0]:.1f}")
    for name, best in seconds.items():
        limit = f"   (limit {LIMITS[name] * 1e3:g} ms)" if name in LIMITS else ""
        print(f"{name:26}{best * 1e3:12.2f} ms{limit}")


if __name__ == "__main__":
    main()

"""python benchmarks/probe.py [--json]

Queries from copies of a cache against queries from scratch: CPU time of one context with n facts and its queries, at
most 32, one thread. `copies` reads the facts once and asks every key from a copy of the cache: cost grows like L + q.
`scratch` reads them again for every query: q L. Both take turns, and their answers are compared, on a random Mamba of
transformers. `results/probe/speed.json` holds what this printed.
"""

import argparse
import json
import os
import sys
import time

import numpy as np
import torch
from transformers import MambaConfig, MambaForCausalLM

from recallscope.measuring.checkpoints.asking import Asker, draw_contexts, queries_of
from recallscope.measuring.checkpoints.readers import CacheReader, ScratchReader
from recallscope.measuring.checkpoints.words import by_number

SIZES = (16, 64, 256)
REPEATS = 2
WANTED = 10  # times as fast at the largest size


def main() -> int:
    """Print one row per number of facts; 1 if copies are too slow, or answer otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    torch.set_num_threads(1)
    config = MambaConfig(vocab_size=1026, hidden_size=32, state_size=8, num_hidden_layers=2)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        reader = CacheReader(MambaForCausalLM(config))
    words = by_number(1026).sized(512)
    askers = {"copies": Asker(reader, words), "scratch": Asker(ScratchReader(reader), words)}
    rows = []
    for n in SIZES:
        drawn = draw_contexts(words, n, 1, np.random.default_rng(n))
        best, answers = dict.fromkeys(askers, float("inf")), {}
        for _ in range(REPEATS):
            for name, asker in askers.items():
                began = time.process_time()
                answers[name] = asker.ask(drawn)[0].other_fact
                best[name] = min(best[name], time.process_time() - began)
        same = bool((answers["copies"] == answers["scratch"]).all())
        rows.append(
            {"num_facts": n, "queries": queries_of(n), **best, "ratio": best["scratch"] / best["copies"], "same": same}
        )
        if not options.json:
            print(
                "n {num_facts:4d}  copies {copies:.3f} s  scratch {scratch:.3f} s  {ratio:.1f} times".format(**rows[-1])
            )
    if options.json:
        print(json.dumps({"rows": rows, "load": os.getloadavg()[0]}, indent=2))
    return 0 if rows[-1]["ratio"] >= WANTED and all(row["same"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())

"""python benchmarks/delta_scan.py [--json] [--rounds 7] [--train]

The delta rule, forward and backward, one thread: our C kernel against our chunked torch form, the plain torch loop, and
flash-linear-attention's naive loop and naive chunked form, which run without Triton. Contenders take turns in one
process, and medians of its CPU time are compared: a busy machine slows all alike. Peak memory is that of a process
which does one forward and backward pass and nothing else, above what it had before. With --train, a whole training of
the bare delta_net at (D, N) = (64, 16), V = 512, N_f = 16, 2000 steps of batch 32, too.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from shared.turns import added_peak, medians
from torch import Tensor
from torch.nn.functional import normalize

from recallscope.ops.delta_scan import delta_scan
from recallscope.registry import import_from

BATCH, N, P = 32, 16, 64
LENGTHS = (64, 1024)
CONTENDERS = ("compiled", "torch", "loop", "fla chunked", "fla loop")
WANTED = {(64, "loop"): 5.0, (1024, "loop"): 10.0, (64, "fla chunked"): 1.0, (1024, "fla chunked"): 1.0}
WANTED_SECONDS = 90.0


def one_pass(name: str, length: int, batch: int = BATCH) -> Callable[[], None]:
    """One forward and backward pass of the delta rule, on inputs that are drawn once."""
    g = torch.Generator().manual_seed(0)
    q, k = (normalize(torch.randn(batch, length, 1, N, generator=g), dim=-1) for _ in range(2))
    v, beta = torch.randn(batch, length, 1, P, generator=g), torch.rand(batch, length, 1, 1, generator=g)
    weight = torch.randn(batch, length, 1, P, generator=g)
    leaves = [x.requires_grad_() for x in (q, k, v, beta)]
    if name.startswith("fla"):
        found = find_spec("fla")
        assert found is not None, "fla-core is not installed: pip install -e '.[test]'"
        assert found.origin is not None
        theirs = import_from(str(Path(found.origin).parent / "ops" / "delta_rule" / "naive.py"))
        form = theirs.delta_rule_recurrence if name == "fla loop" else theirs.delta_rule_chunkwise

        def forward() -> Tensor:
            return form(*(x.transpose(1, 2) for x in (q, k, v)), beta[..., 0].transpose(1, 2))[0].transpose(1, 2)
    else:

        def forward() -> Tensor:
            write = beta * k
            return delta_scan(q * N**-0.5, write, v, None, k, -write, form=name)

    def run() -> None:
        torch.autograd.grad(forward(), leaves, weight)

    return run


def measure(length: int, rounds: int) -> list[dict[str, object]]:
    """Medians of the contenders, taking turns."""
    runs = {name: one_pass(name, length) for name in CONTENDERS}
    ms = medians(runs, rounds)
    return [
        {
            "length": length,
            "who": name,
            "ms": round(ms[name], 2),
            "times_ours": round(ms[name] / ms["compiled"], 1),
            "wanted": WANTED.get((length, name)),
            "peak_mb": in_own_process("memory", name, str(length)),
        }
        for name in CONTENDERS
    ]


def in_own_process(*what: str) -> float:
    command = [sys.executable, __file__, "--measure", *what]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def training_seconds() -> float:
    """CPU seconds of one core, evaluations included: what a free core would take."""
    from recallscope.specs import RunSpec
    from recallscope.train.loop import train_run

    run = RunSpec.model_validate(
        {
            "task": {"vocab_size": 512, "num_facts": 16},
            "model": {"kind": "delta_net", "embed_dim": 64, "state_dim": 16},
            "train": {"batch_size": 32, "eval_size": 1000},
        }
    )
    started = time.process_time()
    train_run(run)
    return round(time.process_time() - started, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=7, help="turns per contender (L 1024: a third of it)")
    parser.add_argument("--train", action="store_true", help="time a whole training, too")
    parser.add_argument("--measure", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.measure:
        what, *rest = options.measure
        if what == "training":
            print(training_seconds())
        else:
            print(added_peak(lambda: one_pass(rest[0], 32, 1), lambda: one_pass(rest[0], int(rest[1]))))
        return
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: at least one turn is needed")
    results = [r for L in LENGTHS for r in measure(L, max(1, options.rounds if L == 64 else options.rounds // 3))]
    seconds = in_own_process("training") if options.train else None
    sizes = {"batch": BATCH, "N": N, "P": P, "threads": 1, "training_seconds": seconds}
    if options.json:
        print(
            json.dumps({"benchmark": "delta_scan", **sizes, "load": os.getloadavg()[0], "results": results}, indent=1)
        )
        return
    print(f"batch {BATCH}, N {N}, P {P}, forward + backward, one thread, load of the machine {os.getloadavg()[0]:.1f}")
    print(f"{'L':>5} {'':12} {'ms':>9} {'x ours':>7} {'wanted':>7} {'peak MB':>8}")
    for r in results:
        wanted = f"{r['wanted']:g}" if r["wanted"] else ""
        print(f"{r['length']:>5} {r['who']:12} {r['ms']:>9.2f} {r['times_ours']:>7} {wanted:>7} {r['peak_mb']:>8}")
    if seconds is not None:
        print(f"training of delta_net at (64, 16), 2000 steps: {seconds:g} s of one core (wanted: {WANTED_SECONDS:g})")


if __name__ == "__main__":
    main()

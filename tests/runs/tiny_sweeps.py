"""Sweeps small enough to be killed at leisure, and what two of them must agree in."""

import json
import os
from pathlib import Path

from commands import Command
from recallscope.architectures.linear_mamba import LinearMambaSpec
from recallscope.runs.grid import Grid
from recallscope.runs.store import RunStore
from recallscope.specs import RunSpec, TrainSpec
from recallscope.tasks.mqar import MQARSpec

TOML = """
skip = ["state_dim > embed_dim"]
[task]
kind = "mqar"
vocab_size = 32
num_facts = 4
[model]
kind = "linear_mamba"
[train]
batch_size = 16
warmup_steps = 5
flat_steps = {flat_steps}
decay_steps = {flat_steps}
eval_every = 20
eval_size = 50
[axes]
embed_dim = [4, 8, 12]
state_dim = [2, 4]
seed = [0, 1, 2, 3]
"""


def tiny_run(**train):
    fields = {"batch_size": 8, "warmup_steps": 2, "flat_steps": 8, "decay_steps": 10, "eval_every": 5, "eval_size": 20}
    return RunSpec(
        task=MQARSpec(vocab_size=32, num_facts=4),
        model=LinearMambaSpec(embed_dim=8, state_dim=4),
        train=TrainSpec(**fields | train),
    )


def tiny_grid(seeds=4, **train):
    return Grid.around(
        tiny_run(**train),
        axes={"embed_dim": [4, 8], "state_dim": [2, 4, 6], "seed": list(range(seeds))},
        skip=["state_dim > embed_dim"],
    )


def grid_file(folder: Path, flat_steps: int) -> Path:
    """24 runs of 2 flat_steps + 5 steps each."""
    path = folder / "grid.toml"
    path.write_text(TOML.format(flat_steps=flat_steps))
    return path


def start_sweep(grid: Path, store: Path, *more: str, workers: int = 2) -> Command:
    return Command("sweep", grid, "--store", store, "--json", "--workers", workers, *more)


def finish_sweep(process: Command, timeout: float = 240) -> dict:
    """The JSON of the last line."""
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err
    assert "Traceback" not in err, err
    return json.loads(out.splitlines()[-1])


def records(store: Path) -> dict[str, dict]:
    """Every record but for what differs by nature: wall time, and the description of the machine."""
    found = {}
    for record in RunStore(store).records():
        fields = record.model_dump(mode="json")
        found[record.run] = {name: value for name, value in fields.items() if name not in ("seconds", "environment")}
    return found


def workers_of(driver: int) -> list[int]:
    """The workers of a sweep: the processes that its fork server has started."""
    return [worker for server in children(driver) for worker in children(server)]


def children(pid: int) -> list[int]:
    """Processes started by one process."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(entry))
    return found

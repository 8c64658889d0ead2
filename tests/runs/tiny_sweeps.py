"""Sweeps small enough to be killed at leisure, and what two of them must agree in."""

import contextlib
import json
import os
from pathlib import Path

from commands import Command
from recallscope.architectures.mamba import LinearMambaSpec
from recallscope.records import RunRecord
from recallscope.runs.grid import Grid
from recallscope.runs.store import RunStore
from recallscope.specs import RunSpec, TrainSpec
from recallscope.tasks.associative_recall import MQARSpec

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


FORKING = """
import os, signal, torch

class Model(torch.nn.Module):
    def __init__(self, vocab_size, width):
        super().__init__()
        self.emb, self.out = torch.nn.Embedding(vocab_size, width), torch.nn.Linear(width, vocab_size)
        self.began = False

    def forward(self, tokens):
        if not self.began and self.training:
            self.began = True
            if (child := os.fork()) == 0:
                while True:
                    signal.pause()
            with open(__file__ + ".children", "a") as file:
                file.write(f"{child}\\n")
        return self.out(self.emb(tokens).cumsum(1))
"""


def grid_file(folder: Path, flat_steps: int, *, forks: bool = False, seeds: int = 4) -> Path:
    """24 runs of 2 flat_steps + 5 steps each, or 6 for each of `seeds`; with `forks` of a module that has children."""
    path, text = folder / "grid.toml", TOML.format(flat_steps=flat_steps)
    text = text.replace("[0, 1, 2, 3]", str(list(range(seeds))))
    if forks:
        (folder / "forking.py").write_text(FORKING)
        text = text.replace('skip = ["state_dim > embed_dim"]\n', "").replace(
            "state_dim = [2, 4]\n", "num_facts = [3, 4]\n"
        )
        text = text.replace('"linear_mamba"', f'"{folder}/forking.py:Model"').replace("embed_dim", "width")
        text = text.replace("num_facts = 4\n", "")
    path.write_text(text)
    return path


def children_left(folder: Path) -> list[int]:
    """The children of modules that live on; those whose worker was killed together with its driver may."""
    path = folder / "forking.py.children"
    return [int(pid) for pid in path.read_text().split() if _lives(pid)] if path.exists() else []


def _lives(pid: str) -> bool:
    """Whether there is such a process, and it is not a dead one that nobody has asked for its exit code."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


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
    return {record.run: comparable(record) for record in RunStore(store).records()}


def comparable(record: RunRecord) -> dict:
    return record.model_dump(mode="json", exclude={"seconds", "environment"})


def module_grid(folder: Path, source: str, **axes: list) -> Grid:
    """Tiny runs of `Model` in a file with this source."""
    (folder / "nets.py").write_text(source)
    return Grid(base=tiny_run().model_dump() | {"model": {"kind": f"{folder / 'nets.py'}:Model"}}, axes=axes)


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

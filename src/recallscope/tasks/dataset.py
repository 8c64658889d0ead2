"""Recall tasks as `torch.utils.data` datasets, for training code of one's own.

Items are pairs (inputs, labels) in zoology's layout: `inputs` are the tokens, `labels` has the answer at every query
position and -100, which torch's cross-entropy ignores, elsewhere. Nothing reads or moves torch's global random stream.

    import recallscope as rs
    from torch.nn.functional import cross_entropy
    from torch.utils.data import DataLoader

    task = rs.MQARSpec(vocab_size=128, num_facts=8)
    for inputs, labels in DataLoader(rs.RecallStream(task, batch_size=32, num_batches=2000, seed=0), batch_size=None):
        loss = cross_entropy(model(inputs).flatten(0, 1), labels.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    test = rs.MQARDataset(vocab_size=128, num_facts=8, num_sequences=1000, seed=1)
"""

import hashlib
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from recallscope.specs import TaskSpec
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.tasks.batch import Batch
from recallscope.tasks.drawing import sample_batch
from recallscope.tasks.zoology import zoology_batch

Pair = tuple[Int[Tensor, "*batch L"], Int[Tensor, "*batch L"]]


class RecallDataset(Dataset[Pair]):
    """A fixed set of sequences of any task, drawn once: equal task, size and seed, equal items."""

    def __init__(self, task: TaskSpec, num_sequences: int, seed: int = 0) -> None:
        self.task = task
        self._keep(sample_batch(task, num_sequences, _generator(task, seed, 0)))

    @classmethod
    def from_zoology(
        cls, task: TaskSpec, num_sequences: int, seed: int, filler_seed: int | None = None
    ) -> "RecallDataset":
        """The very sequences that zoology generates from this seed; see `zoology_batch`."""
        made = cls.__new__(cls)
        made.task = task
        made._keep(zoology_batch(task, num_sequences, seed, filler_seed))
        return made

    def _keep(self, batch: Batch) -> None:
        self.inputs, self.labels = batch.tokens, batch.targets

    def __len__(self) -> int:
        """How many sequences."""
        return len(self.inputs)

    def __getitem__(self, index: int) -> Pair:
        """One sequence: inputs and labels, `L` each."""
        return self.inputs[index], self.labels[index]


class MQARDataset(RecallDataset):
    """`RecallDataset` of MQAR by its fields: `MQARDataset(vocab_size=128, num_facts=8, num_sequences=1000, seed=0)`."""

    def __init__(self, vocab_size: int, num_facts: int, num_sequences: int, seed: int = 0, **fields: Any) -> None:
        super().__init__(MQARSpec(vocab_size=vocab_size, num_facts=num_facts, **fields), num_sequences, seed)


class RecallStream(IterableDataset[Pair]):
    """Fresh batches of any task without end, or `num_batches` of them. Use `DataLoader(stream, batch_size=None)`.

    Batch number i depends on the task, the batch size, the seed and i only. Of W workers, worker w draws the batches w,
    w + W, w + 2 W ...: no two draw the same, and the loader hands on the same batches in the same order whatever W is.
    `start` skips batches, to resume. Processes of a distributed training each take a seed of their own.
    """

    def __init__(
        self, task: TaskSpec, batch_size: int, seed: int = 0, num_batches: int | None = None, start: int = 0
    ) -> None:
        super().__init__()
        self.task, self.batch_size, self.seed = task, batch_size, seed
        self.num_batches, self.start = num_batches, start

    def batch(self, number: int) -> Batch:
        """Batch number i with all that is known of it: positions, answers, keys, values."""
        return sample_batch(self.task, self.batch_size, _generator(self.task, self.seed, number))

    def __iter__(self) -> Iterator[Pair]:
        """Inputs and labels, `batch L` each."""
        worker = get_worker_info()
        first, every = (0, 1) if worker is None else (worker.id, worker.num_workers)
        stop = None if self.num_batches is None else self.start + self.num_batches
        for number in itertools.count(self.start + first, every):
            if stop is not None and number >= stop:
                return
            drawn = self.batch(number)
            yield drawn.tokens, drawn.targets


def _generator(task: TaskSpec, seed: int, number: int) -> torch.Generator:
    """A generator for one batch: equal task, seed and number, equal numbers on every machine."""
    digest = hashlib.sha256(f"{task.content_hash()}/{seed}/{number}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)

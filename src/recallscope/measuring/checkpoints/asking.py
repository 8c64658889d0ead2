"""Read n facts once, query some of them from copies of the cache, and count correct answers.

Every context has its own words, drawn without repetition: keys, the candidates of its forced choice, among them the
values, and examples. So contexts differ in words as well, and are independent of each other. At most
`QUERIES_OF_A_CONTEXT` facts of a context are queried, evenly over its length.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from recallscope.measuring.checkpoints.caches import chosen, layers_of, named_tensors, reset_layer
from recallscope.measuring.checkpoints.readers import Reader
from recallscope.measuring.checkpoints.words import Wording

TOKENS_AT_ONCE = 2**14  # read in one forward pass
CACHE_BYTES = 2**29  # of the copies that are queried in one forward pass
LOGITS_AT_ONCE = 2**24
QUERIES_OF_A_CONTEXT = 32
Flags = NDArray[np.bool_]
Part = tuple[int, str]  # of a cache: layer and name
PartSizes = dict[Part, tuple[int, int]]  # entries and bytes
OnProgress = Callable[[int, int], None]  # facts, further queries answered


@dataclass(frozen=True)
class Contexts:
    """Keys and values of some contexts, by their places in the sets of the wording; one row per context."""

    keys: NDArray[np.int64]
    values: NDArray[np.int64]
    candidates: NDArray[np.int64]
    """the values among which the forced choice is, in increasing order"""
    others: NDArray[np.int64]
    """the values, dealt to other facts of the same context: the pairing of the shuffled control"""
    queried: NDArray[np.int64]
    """the facts that are queried, by their places in the context"""
    shown_keys: NDArray[np.int64]
    """of the example lines"""
    shown_values: NDArray[np.int64]

    def lines(self, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Keys and values of all lines of some contexts: examples first."""
        keys, values = (self.shown_keys, self.keys), (self.shown_values, self.values)
        return np.concatenate([one[rows] for one in keys], axis=1), np.concatenate(
            [one[rows] for one in values], axis=1
        )


@dataclass(frozen=True)
class Answers:
    """Flags of every query, one row per context, oldest fact first."""

    correct: Flags
    """the value has the largest logit of the candidates"""
    greedy: Flags
    """the value has the largest logit of the whole vocabulary"""
    other_fact: Flags
    """the largest logit of the candidates is that of another fact's value"""
    shuffled: Flags
    """the answer would be correct, had the values been dealt to the keys otherwise"""


def draw_contexts(wording: Wording, num_facts: int, contexts: int, rng: np.random.Generator) -> Contexts:
    """Words and their order; the queried facts are one of each stretch of the context."""
    shots, rows = wording.shots, []
    ends = np.linspace(0, num_facts, queries_of(num_facts) + 1).round().astype(np.int64)
    for _ in range(contexts):
        keys = rng.permutation(len(wording.keys))[: shots + num_facts]
        free = rng.permutation(np.flatnonzero(~np.isin(wording.key_of_value, keys)))
        candidates = free[shots : shots + wording.candidates]
        values = candidates[:num_facts]
        others = np.roll(values, int(rng.integers(1, num_facts)) if num_facts > 1 else 0)
        again = np.concatenate([np.arange(shots), rng.permutation(shots)])
        queried = rng.integers(ends[:-1], ends[1:])
        rows.append((keys[shots:], values, np.sort(candidates), others, queried, keys[again], free[again]))
    columns = [np.stack(column) for column in zip(*rows, strict=True)]
    return Contexts(*columns)


def queries_of(num_facts: int) -> int:
    """Queries of one context."""
    return min(num_facts, QUERIES_OF_A_CONTEXT)


def contexts_for(num_facts: int, num_sequences: int) -> int:
    """Contexts at one number of facts: `num_sequences`, more where a context has few facts to query."""
    return -(-num_sequences * QUERIES_OF_A_CONTEXT // queries_of(num_facts))


class Asker:
    """A reader, and the words it is queried in."""

    def __init__(self, reader: Reader, wording: Wording) -> None:
        self.reader, self.wording = reader, wording

    @torch.no_grad()
    def ask(
        self, drawn: Contexts, *, reset: int | None = None, on_progress: OnProgress | None = None
    ) -> tuple[Answers, PartSizes]:
        """The answers to all queries, and the sizes of the cache that they were asked from.

        `reset` is a layer whose memory is set to zero between reading and asking.
        """
        parts = []
        sizes: PartSizes = {}
        tokens = np.asarray(self.wording.values)
        for rows in self._batches(drawn):
            queried = drawn.queried[rows]
            keys, values, others = (
                np.take_along_axis(one[rows], queried, axis=1) for one in (drawn.keys, drawn.values, drawn.others)
            )
            candidates = self._tensor(tokens[drawn.candidates[rows]])
            cache = self.read(*drawn.lines(rows))
            flat, batch = keys.reshape(-1), len(rows)
            sizes = part_sizes(cache, batch)
            which = np.arange(batch).repeat(keys.shape[1])
            said: list[tuple[Tensor, Tensor]] = []
            for part in np.array_split(np.arange(len(flat)), -(-len(flat) // self._copies(cache, batch))):
                copy = chosen(cache, self._tensor(which[part]), batch)
                if reset is not None:
                    reset_layer(copy, reset)
                logits = self.reader.go_on(copy, self._queries(flat[part]))
                choice = logits.gather(1, candidates[self._tensor(which[part])]).argmax(dim=1)
                said.append((choice, logits.argmax(dim=1)))
                if on_progress:
                    on_progress(drawn.keys.shape[1], len(part))
            chosen_place, best_of_all = (
                torch.cat(answers).cpu().numpy().reshape(keys.shape) for answers in zip(*said, strict=True)
            )
            best = np.take_along_axis(drawn.candidates[rows], chosen_place, axis=1)
            correct = best == values
            parts.append(
                Answers(
                    correct=correct,
                    greedy=best_of_all == tokens[values],
                    other_fact=~correct & (best[:, :, None] == drawn.values[rows][:, None]).any(axis=2),
                    shuffled=best == others,
                )
            )
        names = Answers.__dataclass_fields__
        return Answers(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names}), sizes

    @torch.no_grad()
    def read(self, keys: NDArray[np.int64], values: NDArray[np.int64]) -> Any:
        """The cache after some contexts of equally many lines."""
        return self.reader.read(self._tensor(self._contexts(keys, values)))

    @torch.no_grad()
    def copies_differ(self, num_facts: int, rng: np.random.Generator) -> tuple[float, float]:
        """The largest distance between logits asked from copies and from scratch, and the largest of the logits."""
        drawn = draw_contexts(self.wording, num_facts, 2, rng)
        which, keys = np.array([1, 0, 1]), drawn.keys[[1, 0, 1], [0, num_facts - 1, num_facts // 2]]
        queries = self._queries(keys)
        lines = drawn.lines(np.arange(2))
        cache = self.read(*lines)
        from_copies = self.reader.go_on(chosen(cache, self._tensor(which), 2), queries)
        context = self._tensor(self._contexts(*lines))[self._tensor(which)]
        from_scratch = self.reader.from_scratch(torch.cat((context, queries), dim=1))
        return float((from_copies - from_scratch).abs().max()), float(from_scratch.abs().max())

    def _contexts(self, keys: NDArray[np.int64], values: NDArray[np.int64]) -> list[list[int]]:
        wording = self.wording
        ids_of_keys, ids_of_values = np.asarray(wording.keys), np.asarray(wording.values)
        rows = zip(ids_of_keys[keys].tolist(), ids_of_values[values].tolist(), strict=True)
        return [wording.context(*row) for row in rows]

    def _queries(self, keys: NDArray[np.int64]) -> Tensor:
        return self._tensor([self.wording.ask(self.wording.keys[key]) for key in keys])

    def _batches(self, drawn: Contexts) -> Iterator[NDArray[np.int64]]:
        """Contexts that are read together."""
        contexts, num_facts = drawn.keys.shape
        together = max(1, TOKENS_AT_ONCE // self.wording.length(num_facts))
        yield from np.array_split(np.arange(contexts), -(-contexts // together))

    def _copies(self, cache: Any, batch: int) -> int:
        """Queries that are asked together: as many as their caches and logits leave room for."""
        size = sum(tensor.numel() * tensor.element_size() for _, tensor in named_tensors(cache)) // batch
        return max(1, min(CACHE_BYTES // max(size, 1), LOGITS_AT_ONCE // self.reader.vocab_size))

    def _tensor(self, numbers: Any) -> Tensor:
        return torch.as_tensor(np.asarray(numbers), device=self.reader.device)


def part_sizes(cache: Any, batch: int) -> PartSizes:
    """Numbers and bytes that a cache keeps of one sequence, by layer and name."""
    sizes: PartSizes = {}
    for layer, part in enumerate(layers_of(cache) or [cache]):
        for name, tensor in named_tensors(part):
            if tensor.ndim > 1:
                numbers, size = sizes.get((layer, name), (0, 0))
                here = tensor.numel() // batch
                sizes[layer, name] = numbers + here, size + here * tensor.element_size()
    return sizes


def growing_parts(asker: Asker) -> set[Part]:
    """The parts of a cache that grow with the context: key-value memory. All others are recurrent."""
    few, more = (part_sizes(asker.read(facts, facts), 1) for facts in (np.arange(2)[None], np.arange(4)[None]))
    return {part for part in more if more[part] != few.get(part)}

"""`rs.probe`: how many facts does a language model hold that is there already?"""

import hashlib
import platform
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from recallscope.measuring.checkpoints.asking import (
    Answers,
    Asker,
    OnProgress,
    Part,
    PartSizes,
    contexts_for,
    draw_contexts,
    growing_parts,
    part_sizes,
    queries_of,
)
from recallscope.measuring.checkpoints.capacity import (
    FIRST,
    counts_of,
    find_crossing,
    held_bits,
    law_says,
    law_shape,
    search,
    verdict,
)
from recallscope.measuring.checkpoints.curves import share_interval
from recallscope.measuring.checkpoints.layers import look_inside
from recallscope.measuring.checkpoints.readers import CacheReader, Reader, StoredReader, reader_of
from recallscope.measuring.checkpoints.record import Crossing, LawSays, Point, ProbeRecord, probe_id
from recallscope.measuring.checkpoints.words import (
    BY_NUMBER,
    LEAST_WORDS,
    MOST_WORDS,
    SHOTS,
    Wording,
    by_number,
    has_chat_template,
    wording,
)
from recallscope.state_precision import StatePrecision

MOST_GROUPS = 16  # of neighbouring facts, in recall by place
CLOSE = {torch.float32: 1e-3, torch.float64: 1e-6}  # distance of copies from scratch over the largest logit
CLOSE_HALF = 0.05
STEP_COST = 2  # of a token of a query, which moves a cache, over that of a token that is read
WELL = 0.75  # recall at which layers are looked at
WIDTHS = ("embed_dim", "hidden_size", "d_model", "n_embd")  # names of D
WINDOWS = ("conv", "window")  # how the names of inputs begin that a convolution still sees
STREAMS = ("copies", "bootstrap", "inside", "search")  # beside those of the contexts


class Probe:
    """A model, the words it is queried in, and how; `run` measures."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any = None,
        *,
        name: str | None = None,
        template: str = "bare",
        chat: bool = False,
        shots: int | None = None,
        candidates: int = 256,
        num_facts: Sequence[int] | None = None,
        max_facts: int | None = None,
        num_sequences: int = 4,
        width: float = 1.4,
        max_queries: int = 2048,
        min_recall: float = 0.3,
        seed: int = 0,
        layers: bool = False,
        copies: bool = True,
        state_precision: StatePrecision | None = None,
    ) -> None:
        """See `probe`. Checks everything that can be checked before a fact is read."""
        for what, value, low, high in (
            ("candidates", candidates, LEAST_WORDS, 10**6), ("max_facts", max_facts or FIRST, FIRST, 10**6),
            ("num_sequences", num_sequences, 1, 10**6), ("max_queries", max_queries, 1, 10**9),
            ("seed", seed, 0, 2**31 - 1),
        ):  # fmt: skip
            if not low <= value <= high:
                raise ValueError(f"{what}={value} is outside {low}..{high}.")
        if not 0 < min_recall < 0.5:
            raise ValueError(
                f"min_recall={min_recall} is not between 0 and 0.5. The search ends once recall is below it."
            )
        if not width > 1:
            raise ValueError(f"width={width} is not above 1: it is the factor between the ends of the interval.")
        if chat and not has_chat_template(tokenizer):
            raise ValueError("this tokenizer has no chat template. Probe without --chat (in Python chat=False).")
        self.model, self.seed, self.layers, self.num_sequences = model, seed, layers, num_sequences
        self.min_recall, self.width, self.max_queries = min_recall, width, max_queries
        self.name = name or type(model).__name__
        self.reader: Reader = reader_of(model, copies=copies)
        self.chat_unused = has_chat_template(tokenizer) and not chat
        self.tokenizer = tokenizer
        words = self._words(template, 2 * (candidates + (shots or SHOTS)), chat)
        shots = 0 if shots is None and (tokenizer is None or chat) else shots
        self.wording = words.sized(candidates, shots)
        self._require_room(FIRST)
        self.most = min(max_facts or candidates, self.wording.facts_within(self.reader.longest))
        for n in num_facts or []:
            self._require_room(n)
        self.num_facts = sorted(set(num_facts)) if num_facts else None
        self.settings = {
            "template": BY_NUMBER if tokenizer is None else template, "chat": chat,
            "shots": self.wording.shots, "candidates": self.wording.candidates, "num_facts": self.num_facts,
            "max_facts": self.most, "num_sequences": num_sequences, "width": width,
            "max_queries": max_queries, "floor": min_recall, "seed": seed, "layers": layers, "copies": copies,
            "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
        }  # fmt: skip
        self.stored: StoredReader | None = None
        if state_precision is not None:
            self.stored = StoredReader(self.reader, state_precision, self._states(), seed)
            self.settings["state_precision"] = state_precision.model_dump(mode="json")
        lines = replace(self.wording, words={})
        self.identity = {
            "weights": weights_digest(model), "settings": self.settings,
            "words": hashlib.sha256(repr(lines).encode()).hexdigest(),
        }  # fmt: skip

    @property
    def id(self) -> str:
        """The name of its record."""
        return probe_id(self.identity)

    def stream(self, name: str) -> np.random.Generator:
        """Random numbers for one purpose."""
        return np.random.default_rng([self.seed, 0, STREAMS.index(name)])

    def _words(self, template: str, count: int, chat: bool) -> Wording:
        count = max(count, MOST_WORDS)
        if self.tokenizer is None:
            return by_number(self.reader.vocab_size, count)
        words = wording(self.tokenizer, template, count, chat=chat)
        fixed = (token for token in words.query if token is not None)
        largest = max(*words.head, *words.between, *words.end, *words.tail, *fixed, *words.keys, *words.values)
        if largest >= self.reader.vocab_size:
            raise ValueError(
                f"the tokenizer has a token {largest}, and this model has {self.reader.vocab_size} tokens. They do not "
                f"belong together: use the tokenizer that the model was trained with."
            )
        return words

    def _require_room(self, num_facts: int) -> None:
        words, most = self.wording, self.wording.candidates
        if not 1 <= num_facts <= most:
            raise ValueError(
                f"num_facts={num_facts}: a context has 1 to {most} facts, as many as --candidates if the tokenizer has "
                f"words enough."
            )
        room = words.facts_within(self.reader.longest)
        if num_facts > room:
            way_out = f"Use {room} or fewer." if room else "Not even one fact fits."
            raise ValueError(
                f"num_facts={num_facts} makes a context of {words.length(num_facts)} tokens, and this model has "
                f"positions for {self.reader.longest}. {way_out}"
            )

    def run(self, on_progress: OnProgress | None = None) -> ProbeRecord:
        """Read, query, estimate, look inside."""
        began, began_cpu = time.perf_counter(), time.process_time()
        asker = Asker(self.reader, self.wording)
        growing = growing_parts(asker) if self.reader.has_cache else set()
        if isinstance(self.reader, CacheReader):
            self.reader.together = not self._recurrent_parts(asker, growing)
        differ = self._check_copies(asker)
        asker = Asker(self.stored or self.reader, self.wording)
        answers_at: dict[int, list[Answers]] = {}
        sizes_at: dict[int, PartSizes] = {}

        def measure(n: int) -> Point:
            """Some more contexts of n facts; the same ones whenever it is their turn."""
            earlier = answers_at.setdefault(n, [])
            rng = np.random.default_rng([self.seed, n, len(earlier)])
            drawn = draw_contexts(self.wording, n, contexts_for(n, self.num_sequences), rng)
            answers, sizes = asker.ask(drawn, on_progress=on_progress)
            earlier.append(answers)
            sizes_at[n] = sizes if self.reader.has_cache else {}
            return self._point(n, earlier, sizes_at[n], growing)

        if self.num_facts:
            points = [measure(n) for n in self.num_facts]
        else:
            points = search(
                measure, max_facts=self.most, min_recall=self.min_recall, width=self.width,
                max_queries=self.max_queries, rng=self.stream("search"),
            )  # fmt: skip
        rng = self.stream("bootstrap")
        ends = share_interval(counts_of(points), rng)
        points = [
            point.model_copy(update={"interval": (float(min(low, point.recall)), float(max(high, point.recall)))})
            for point, (low, high) in zip(points, ends, strict=True)
        ]
        recalls, says = verdict(points)
        n_50, n_90, greedy_n_50 = (
            find_crossing(points, kind, target, rng) if recalls else _no_crossing(target)
            for kind, target in (("correct", 0.5), ("correct", 0.9), ("greedy", 0.5))
        )
        inside = None
        if self.layers and recalls:
            n = max((point.num_facts for point in points if point.recall >= WELL), default=points[0].num_facts)
            inside = look_inside(asker, growing, n, self.num_sequences, self.stream("inside"), on_progress)
        best, last = max(points, key=lambda point: point.bits), sizes_at[points[-1].num_facts]
        sizes, end = self._sizes(last, growing), points[-1]
        read = self.wording.length(end.num_facts) - len(self.wording.query)
        return ProbeRecord(
            probe=self.id,
            name=self.name,
            identity=self.identity,
            model=sizes,
            settings=self.settings,
            words=self.wording.source,
            keys=[self.wording.words[token] for token in self.wording.keys],
            values=[self.wording.words[token] for token in self.wording.values],
            example=self._example(),
            tokens_per_fact=self.wording.fact_tokens,
            chat_unused=self.chat_unused,
            recalls=recalls,
            verdict=says,
            points=points,
            n_50=n_50,
            n_90=n_90,
            greedy_n_50=greedy_n_50,
            law_shape=law_shape(points, rng) if recalls else None,
            state_parts=_by_name(last),
            key_value_per_token=end.key_value_entries / read if end.key_value_entries else None,
            most_bits=best.bits,
            bits_per_entry=best.bits / best.recurrent_entries if best.recurrent_entries and not growing else None,
            law=self._law(sizes),
            copies_differ=differ,
            inside=inside,
            seconds=time.perf_counter() - began,
            cpu_seconds=time.process_time() - began_cpu,
            environment={
                "torch": torch.__version__,
                "python": platform.python_version(),
                "device": str(self.reader.device),
            },
        )

    def estimated_seconds(self) -> float:
        """Time for a search to the largest number of facts that spends all queries, by that of one context."""
        numbers = [min(FIRST << power, self.most) for power in range((self.most - 1).bit_length())]
        asked = sum(contexts_for(n, self.num_sequences) * queries_of(n) for n in numbers)
        read = sum(contexts_for(n, self.num_sequences) * self.wording.length(n) for n in numbers)
        middle = min(32, self.most)
        more = max(self.max_queries - asked, 0)
        read += more // queries_of(middle) * self.wording.length(middle)
        asker, facts = Asker(self.stored or self.reader, self.wording), np.arange(middle)[None]
        began = time.perf_counter()
        asker.read(facts, facts)
        each = (time.perf_counter() - began) / self.wording.length(middle)
        steps = len(self.wording.query) * (asked + more)
        return each * (read + STEP_COST * steps)

    def _example(self) -> str:
        """Two facts, with the examples before them, and a query, as the model reads them."""
        words, drawn = self.wording, draw_contexts(self.wording, FIRST, 1, self.stream("copies"))
        keys, values = (
            [tokens[at] for at in places[0]]
            for tokens, places in zip((words.keys, words.values), drawn.lines(np.arange(1)), strict=True)
        )
        tokens = [*words.context(keys, values), *words.ask(keys[-1])]
        if self.tokenizer is None:
            return " ".join(map(str, tokens))
        return str(self.tokenizer.decode(tokens))

    def _states(self) -> set[str]:
        """Names of the recurrent states in the cache; none if there is no cache."""
        if not self.reader.has_cache:
            return set()
        asker = Asker(self.reader, self.wording)
        recurrent = self._recurrent_parts(asker, growing_parts(asker))
        return {name for _, name in recurrent if not name.startswith(WINDOWS)}

    def _recurrent_parts(self, asker: Asker, growing: set[Part]) -> set[Part]:
        return set(part_sizes(asker.read(np.arange(2)[None], np.arange(2)[None]), 1)) - growing

    def _check_copies(self, asker: Asker) -> float | None:
        """How far answers from copies are from those from scratch; ValueError if they are not the same."""
        if not self.reader.has_cache:
            return None
        differ, largest = asker.copies_differ(min(4, self.most), self.stream("copies"))
        if not differ <= CLOSE.get(next(self.model.parameters()).dtype, CLOSE_HALF) * max(largest, 1.0):
            raise ValueError(
                f"asked from a copy of its cache, {self.name} answers otherwise than from scratch: logits differ by "
                f"{differ:.2g}, where the largest is {largest:.2g}. Its cache cannot be copied; --from-scratch (in "
                f"Python copies=False) reads the facts again for every query, which takes longer."
            )
        return differ

    def _point(self, n: int, batches: list[Answers], sizes: PartSizes, growing: set[Part]) -> Point:
        flags = {name: np.concatenate([getattr(one, name) for one in batches]) for name in Answers.__dataclass_fields__}
        correct = flags["correct"]
        wrong = correct.size - int(correct.sum())
        other = int(flags["other_fact"].sum()) / wrong if wrong else None
        queries = correct.shape[1]
        groups = np.arange(queries) * min(queries, MOST_GROUPS) // queries
        recall = float(correct.mean())
        entries = {"recurrent": 0, "key-value": 0}
        for part, (size, _) in sizes.items():
            entries["key-value" if part in growing else "recurrent"] += size
        return Point(
            num_facts=n,
            contexts=len(correct),
            queries=correct.size,
            correct_per_context=correct.sum(axis=1).tolist(),
            greedy_per_context=flags["greedy"].sum(axis=1).tolist(),
            recall=recall,
            interval=(recall, recall),  # by all points together, once they are measured
            greedy_recall=float(flags["greedy"].mean()),
            no_facts=1 / self.wording.candidates,
            shuffled=float(flags["shuffled"].mean()),
            wrong_other_fact=other,
            wrong_else=None if other is None else 1 - other,
            by_place=[float(correct[:, groups == group].mean()) for group in range(groups[-1] + 1)],
            recurrent_entries=entries["recurrent"] if sizes else None,
            key_value_entries=entries["key-value"] if sizes else None,
            state_bytes=sum(size for _, size in sizes.values()) if sizes else None,
            bits=held_bits(n, self.wording.candidates, recall),
        )

    def _sizes(self, sizes: PartSizes, growing: set[Part]) -> dict[str, Any]:
        """What is known of the model: its class, parameters, layers with memory, width, state of its largest layer."""
        config = getattr(self.model, "spec", None) or getattr(self.model, "config", None)
        states = [
            entries for part, (entries, _) in sizes.items() if part not in growing and not part[1].startswith(WINDOWS)
        ]
        width = next((getattr(config, name) for name in WIDTHS if hasattr(config, name)), None)
        return {
            "class": type(self.model).__name__,
            "parameters": sum(weight.numel() for weight in self.model.parameters()),
            "layers_with_memory": len({layer for layer, _ in sizes}),
            "width": width,
            "state_of_a_layer": max(states, default=0),
        }

    def _law(self, sizes: dict[str, Any]) -> LawSays | None:
        if not sizes["width"] or not sizes["state_of_a_layer"]:
            return None
        return law_says(sizes["width"], sizes["state_of_a_layer"], 2 * self.wording.candidates)


def _no_crossing(target: float) -> Crossing:
    """Of a model that does not recall: accuracy that its controls have, too, says nothing about its memory."""
    reason = "none: accuracy is not above the controls"
    return Crossing(target=target, num_facts=None, interval=(None, None), interpolated=None, reason=reason)


def _by_name(sizes: PartSizes) -> dict[str, int]:
    """Numbers of all layers together, by name."""
    found: dict[str, int] = {}
    for (_, name), (entries, _) in sizes.items():
        found[name] = found.get(name, 0) + entries
    return found


def weights_digest(model: nn.Module) -> str:
    """SHA-256 over names, shapes and numbers of all weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


def probe(model: nn.Module, tokenizer: Any = None, *, on_progress: OnProgress | None = None, **how: Any) -> ProbeRecord:
    """Put facts into a model's context in its own tokens, query them, and find how many it holds.

    `model` is a causal language model of transformers, or one of ours (`rs.from_pretrained`, a trained one).
    `tokenizer` is one of transformers or of the tokenizers library, or anything with `encode`, `decode` and
    `get_vocab`; without one, tokens are used by their numbers. Options, with their defaults:

    - `template="bare"`: "bare", "natural", or a line of your own with {key} and {value};
    - `chat=False`: the facts are a user's message in the chat template of the tokenizer;
    - `shots=None`: example facts before the others, each written twice: 4, but 0 in a chat or without a
      tokenizer;
    - `candidates=256`: values of a forced choice, or as many as there are, whatever the number of facts;
    - `num_facts=None`: only these numbers of facts, instead of a search up to `max_facts`, all that fit;
    - `num_sequences=4`: contexts of 32 queries at each number of facts, more contexts if they are shorter; further
      ones are added around n_50 until the ends of its interval are within a factor `width=1.4`, or `max_queries=2048`
      were asked; `min_recall=0.3`: recall at which the search ends;
    - `layers=False`: also find the layers that hold the facts;
    - `copies=True`: query copies of the cache; else from scratch, which takes longer;
    - `state_precision=None`: a `StatePrecision` in which recurrent states are stored, exactly unless given;
    - `seed=0`: of contexts, with their words, and intervals; `name`: of the record.
    """
    return Probe(model, tokenizer, **how).run(on_progress)

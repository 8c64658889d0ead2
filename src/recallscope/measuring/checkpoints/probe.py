"""`rs.probe`: how many facts does a language model hold that is there already?"""

import hashlib
import platform
import time
from collections.abc import Sequence
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
)
from recallscope.measuring.checkpoints.capacity import FIRST, fit_points, held_bits, law_says, search, verdict
from recallscope.measuring.checkpoints.curves import INTERVAL, resampled
from recallscope.measuring.checkpoints.layers import look_inside
from recallscope.measuring.checkpoints.readers import Reader, reader_of
from recallscope.measuring.checkpoints.record import LawSays, Point, ProbeRecord, probe_id
from recallscope.measuring.checkpoints.words import BY_NUMBER, LEAST_WORDS, Wording, by_number, wording

MOST_GROUPS = 16  # of neighbouring facts, in recall by place
CLOSE = {torch.float32: 1e-3, torch.float64: 1e-6}  # distance of copies from scratch over the largest logit
CLOSE_HALF = 0.05
WELL = 0.75  # recall at which layers are looked at
WIDTHS = ("embed_dim", "hidden_size", "d_model", "n_embd")  # names of D
WINDOWS = ("conv", "window")  # how the names of inputs begin that a convolution still sees
STREAMS = ("words", "examples", "copies", "bootstrap", "inside")  # random numbers beside those of the contexts


class Probe:
    """A model, the words it is asked in, and how; `run` measures."""

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any = None,
        *,
        name: str | None = None,
        template: str = "bare",
        shots: int = 0,
        num_facts: Sequence[int] | None = None,
        most_facts: int = 1024,
        questions: int = 256,
        floor: float = 0.2,
        seed: int = 0,
        layers: bool = False,
        copies: bool = True,
    ) -> None:
        """See `probe`. Checks everything that can be checked before a fact is read."""
        for what, value, low, high in (
            ("most_facts", most_facts, 2, 10**6), ("questions", questions, 16, 10**7), ("seed", seed, 0, 2**31 - 1),
        ):  # fmt: skip
            if not low <= value <= high:
                raise ValueError(f"{what}={value} is outside {low}..{high}.")
        if not 0 < floor < 1:
            raise ValueError(f"floor={floor} is not between 0 and 1. The search ends once recall is below it.")
        self.model, self.seed, self.layers, self.questions, self.floor = model, seed, layers, questions, floor
        self.name = name or type(model).__name__
        self.reader: Reader = reader_of(model, copies=copies)
        words = self._words(tokenizer, template, max(LEAST_WORDS, most_facts, *(num_facts or [])) + shots)
        self.wording = words.with_examples(shots, self.stream("examples"))
        self.most = self._most(most_facts)
        for n in num_facts or []:
            self._require_room(n)
        self.num_facts = sorted(set(num_facts)) if num_facts else None
        self.settings = {
            "template": BY_NUMBER if tokenizer is None else template, "shots": shots, "num_facts": self.num_facts,
            "most_facts": most_facts, "questions": questions, "floor": floor, "seed": seed, "layers": layers,
            "copies": copies, "dtype": str(next(model.parameters()).dtype).removeprefix("torch."),
        }  # fmt: skip
        self.identity = {
            "weights": weights_digest(model), "settings": self.settings,
            "words": hashlib.sha256(repr((self.wording.keys, self.wording.values)).encode()).hexdigest(),
        }  # fmt: skip

    @property
    def id(self) -> str:
        """The name of its record."""
        return probe_id(self.identity)

    def stream(self, name: str) -> np.random.Generator:
        """Random numbers for one purpose."""
        return np.random.default_rng([self.seed, 0, STREAMS.index(name)])

    def _words(self, tokenizer: Any, template: str, most: int) -> Wording:
        if tokenizer is None:
            return by_number(self.reader.vocab_size, most, self.stream("words"))
        words = wording(tokenizer, template, most, self.stream("words"))
        largest = max(*words.head, *words.between, *words.end, *words.keys, *words.values)
        if largest >= self.reader.vocab_size:
            raise ValueError(
                f"the tokenizer has a token {largest}, and this model has {self.reader.vocab_size} tokens. They do not "
                f"belong together: use the tokenizer that the model was trained with."
            )
        return words

    def _most(self, most_facts: int) -> int:
        """The most facts that are asked for: as many as there are words and positions for."""
        self._require_room(FIRST)
        return min(most_facts, self.wording.facts_within(self.reader.longest))

    def _require_room(self, num_facts: int) -> None:
        words, most = self.wording, self.wording.most_facts
        if not 1 <= num_facts <= most:
            raise ValueError(
                f"num_facts={num_facts}: there are {most} keys and values, so 1 to {most} facts can be told."
            )
        room = words.facts_within(self.reader.longest)
        if num_facts > room:
            way_out = f"Ask for {room} or fewer." if room else "Not even one fact fits."
            raise ValueError(
                f"num_facts={num_facts} makes a context of {words.length(num_facts)} tokens, and this model has "
                f"positions for {self.reader.longest}. {way_out}"
            )

    def run(self, on_progress: OnProgress | None = None) -> ProbeRecord:
        """Read, ask, fit, look inside."""
        began = time.perf_counter()
        asker = Asker(self.reader, self.wording)
        differ = self._check_copies(asker)
        growing = growing_parts(asker) if self.reader.has_cache else set()
        sizes_at: dict[int, PartSizes] = {}

        def measure(n: int) -> Point:
            rng = np.random.default_rng([self.seed, n])
            drawn = draw_contexts(self.wording, n, contexts_for(n, self.questions), rng)
            answers, sizes = asker.ask(drawn, on_progress=on_progress)
            sizes_at[n] = sizes if self.reader.has_cache else {}
            return self._point(answers, sizes_at[n], growing, rng)

        if self.num_facts:
            points = [measure(n) for n in self.num_facts]
        else:
            points = search(measure, self.most, self.floor)
        recalls, says = verdict(points)
        curves, (n_50, n_90) = fit_points(points, self.stream("bootstrap"))
        inside = None
        if self.layers and recalls:
            n = max((point.num_facts for point in points if point.recall >= WELL), default=points[0].num_facts)
            inside = look_inside(asker, growing, n, self.questions, self.stream("inside"), on_progress)
        best, last = max(points, key=lambda point: point.bits), sizes_at[points[-1].num_facts]
        sizes = self._sizes(last, growing)
        return ProbeRecord(
            probe=self.id,
            name=self.name,
            identity=self.identity,
            model=sizes,
            settings=self.settings,
            keys={self.wording.words[token]: token for token in self.wording.keys},
            values={self.wording.words[token]: token for token in self.wording.values},
            tokens_per_fact=self.wording.fact_tokens,
            recalls=recalls,
            verdict=says,
            points=points,
            n_50=n_50,
            n_90=n_90,
            curves=curves,
            state_parts=_by_name(last),
            most_bits=best.bits,
            bits_per_entry=best.bits / best.state_entries if best.state_entries else None,
            law=self._law(sizes),
            copies_differ=differ,
            inside=inside,
            seconds=time.perf_counter() - began,
            environment={
                "torch": torch.__version__,
                "python": platform.python_version(),
                "device": str(self.reader.device),
            },
        )

    def _check_copies(self, asker: Asker) -> float | None:
        """How far answers from copies are from those from scratch; ValueError if they are not the same."""
        if not self.reader.has_cache:
            return None
        differ, largest = asker.copies_differ(min(4, self.most), self.stream("copies"))
        if not differ <= CLOSE.get(next(self.model.parameters()).dtype, CLOSE_HALF) * max(largest, 1.0):
            raise ValueError(
                f"asked from a copy of its cache, {self.name} answers otherwise than from scratch: logits differ by "
                f"{differ:.2g}, where the largest is {largest:.2g}. Its cache cannot be copied; --from-scratch (in "
                f"Python copies=False) reads the facts again for every question, which takes longer."
            )
        return differ

    def _point(self, answers: Answers, sizes: PartSizes, growing: set[Part], rng: np.random.Generator) -> Point:
        contexts, n = answers.right.shape
        right = answers.right.sum(axis=1)
        wrong = answers.right.size - int(right.sum())
        ends = np.percentile(resampled(right.astype(float), n, rng), INTERVAL) / answers.right.size
        other = int(answers.other_fact.sum()) / wrong if wrong else None
        groups = np.arange(n) * min(n, MOST_GROUPS) // n
        recall = float(answers.right.mean())
        numbers = {"recurrent": 0, "key-value": 0}
        for part, (entries, _) in sizes.items():
            numbers["key-value" if part in growing else "recurrent"] += entries
        return Point(
            num_facts=n,
            contexts=contexts,
            asked=answers.right.size,
            right_per_context=right.tolist(),
            recall=recall,
            interval=(float(ends[0]), float(ends[1])),
            recall_of_all=float(answers.right_of_all.mean()),
            prior=float(answers.prior.mean()),
            shuffled=float(answers.shuffled.mean()),
            wrong_other_fact=other,
            wrong_else=None if other is None else 1 - other,
            by_place=[float(answers.right[:, groups == group].mean()) for group in range(groups[-1] + 1)],
            recurrent_entries=numbers["recurrent"] if sizes else None,
            key_value_entries=numbers["key-value"] if sizes else None,
            state_bytes=sum(size for _, size in sizes.values()) if sizes else None,
            bits=held_bits(n, len(self.wording.values), recall),
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
        return law_says(sizes["width"], sizes["state_of_a_layer"], 2 * len(self.wording.values))


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
    """Tell a model facts in its own tokens, ask for each, and find how many it holds.

    `model` is a causal language model of transformers, or one of ours (`rs.from_pretrained`, a trained one).
    `tokenizer` is one of transformers or of the tokenizers library, or anything with `encode`, `decode` and
    `get_vocab`; without one, tokens are used by their numbers. Options, with their defaults:

    - `template="bare"`: "bare", "natural", or a line of your own with {key} and {value};
    - `shots=0`: example facts before the others, told and repeated;
    - `num_facts=None`: only these numbers of facts, instead of a search up to `most_facts=1024`;
    - `questions=256`: at least so many at every number of facts; `floor=0.2`: recall at which the search ends;
    - `layers=False`: also find the layers that hold the facts;
    - `copies=True`: ask from copies of the cache; else from scratch, which takes longer;
    - `seed=0`: of words, contexts and intervals; `name`: of the record.
    """
    return Probe(model, tokenizer, **how).run(on_progress)

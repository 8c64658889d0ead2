"""What a probe leaves behind: plain data, read without torch, with a digest that shows whether it was edited.

STORE/probes/NAME-ID.json, beside the runs of a store. ID is a hash of the weights, the words and the settings: the same
probe has the same name, and is not measured twice. A file that is there is never overwritten.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, NonNegativeInt, PlainSerializer, ValidationError

from recallscope.atomic import write_atomically
from recallscope.records import RecordError, record_text
from recallscope.runs.store import RunStore, set_aside
from recallscope.specs import Fraction, Frozen, identity_hash
from recallscope.state_precision import StatePrecision

FOLDER = "probes"
Interval = tuple[float | None, float | None]
Words = Annotated[
    list[str],
    BeforeValidator(lambda words: words.split() if isinstance(words, str) else list(words)),  # or a table with tokens
    PlainSerializer(" ".join),  # one line of the file
]


class _Part(Frozen):
    model_config = ConfigDict(extra="ignore", strict=False)


class Point(_Part):
    """All queries at one number of facts."""

    num_facts: int
    contexts: int
    queries: int = Field(description="of all contexts, which have equally many")
    correct_per_context: list[int]
    greedy_per_context: list[int] | None = Field(description="None in records of schema 1, which have the mean alone")
    recall: Fraction = Field(description="accuracy of forced choice: the value has the largest logit of the candidates")
    interval: tuple[Fraction, Fraction] = Field(description="95%, of recall, bootstrap")
    greedy_recall: Fraction = Field(description="the value has the largest logit of the whole vocabulary")
    no_facts: Fraction = Field(
        description="correct without having read a fact: 1 in so many candidates, as values are drawn at random for "
        "every context; measured in records in which all contexts had the same words"
    )
    shuffled: Fraction = Field(description="correct if the values were dealt to other keys: facts without pairing")
    wrong_other_fact: Fraction | None = Field(description="of the wrong answers, those with another fact's value")
    wrong_else: Fraction | None = Field(description="of the wrong answers, all others")
    by_place: list[float] = Field(description="recall by place in the context, oldest first, in groups of neighbours")
    recurrent_entries: NonNegativeInt | None
    key_value_entries: NonNegativeInt | None
    state_bytes: NonNegativeInt | None
    bits: float = Field(description="about the values, that this recall proves were held (Lem 4.5)")

    @property
    def state_entries(self) -> int | None:
        """Numbers of the cache, of both kinds."""
        if self.recurrent_entries is None or self.key_value_entries is None:
            return None
        return self.recurrent_entries + self.key_value_entries


class Crossing(_Part):
    """The number of facts at which accuracy falls to a target."""

    target: Fraction
    num_facts: float | None = Field(description="by antitonic regression; None where outside of what was measured")
    interval: Interval = Field(description="95%; an end is None where it is outside of what was measured")
    interpolated: float | None = Field(
        description="on a straight line between measured accuracies, the closest to num_facts"
    )
    reason: str


class LawShape(_Part):
    """The curve Phi(intercept + slope / sqrt(n)) through the counts."""

    intercept: float
    slope: float
    probability: Fraction = Field(description="under the curve, of counts that fit it as badly")
    admitted: bool = Field(description="probability above 0.05; otherwise recall has another shape")


class LayerFacts(_Part):
    """What one layer's memory does for recall."""

    layer: int
    memory: Literal["recurrent", "key-value", "both"]
    entries: int
    recall_without: Fraction = Field(description="recall with this layer's memory set to zero before asking")
    lost: float
    decoded: Fraction | None = Field(description="a linear map from the state names the value of a fixed key")
    decoded_control: Fraction | None = Field(description="the same, with the values shuffled between contexts")


class Inside(_Part):
    """Layer by layer, at one number of facts."""

    num_facts: int
    recall: Fraction
    choices: int = Field(description="values among which a linear map chooses")
    layers: list[LayerFacts]
    left_out: str = ""


class LawSays(_Part):
    """What the paper's law gives for one trained layer of these sizes; not a prediction for the checkpoint."""

    law: str
    embed_dim: int
    state_dim: int
    vocab_size: int
    n_50: int | None
    n_90: int | None
    says: str = "a law for one trained layer of these sizes, not for a checkpoint of many layers trained on text"


class ProbeRecord(_Part):
    """One checkpoint, probed once."""

    schema_version: Literal[2] = 2
    probe: str = Field(description="24 hex digits: a hash of weights, words and settings")
    name: str
    identity: dict[str, Any]
    model: dict[str, Any] = Field(description="class, parameters, layers, sizes")
    settings: dict[str, Any]
    words: str = Field(description="where keys and values are from")
    keys: Words = Field(description="those that contexts are drawn from")
    values: Words = Field(description="those that candidates are drawn from")
    example: str = Field(description="a context of two facts with its query")
    tokens_per_fact: int
    chat_unused: bool = Field(description="the checkpoint has a chat template, and was probed without it")
    recalls: bool
    verdict: str
    points: list[Point]
    n_50: Crossing = Field(description="of forced choice among the values")
    n_90: Crossing = Field(description="of forced choice among the values")
    greedy_n_50: Crossing | None = Field(description="of greedy decoding; None in records of schema 1")
    law_shape: LawShape | None
    state_parts: dict[str, int] = Field(description="entries by name, at the largest number of facts")
    key_value_per_token: float | None = Field(description="entries by which key-value memory grows with every token")
    most_bits: float
    bits_per_entry: float | None = Field(description="most_bits over the recurrent state; None if there is none")
    law: LawSays | None
    copies_differ: float | None = Field(description="logits asked from copies and from scratch, largest distance")
    inside: Inside | None = None
    seconds: float
    cpu_seconds: float | None = Field(description="of this process; None in records of schema 1")
    environment: dict[str, str]

    @property
    def how(self) -> str:
        """Template, examples, chat and stored state in a few words, which tell compared probes apart."""
        shots, stored = self.settings.get("shots", 0), self.settings.get("state_precision")
        parts = [str(self.settings["template"]), f"{shots} shots" if shots else "", "chat" * self.settings["chat"]]
        parts += [StatePrecision.model_validate(stored).label] if stored else []
        return ", ".join(part for part in parts if part)

    def _repr_html_(self) -> str:
        """For notebooks: the page without its frame."""
        from recallscope.measuring.checkpoints.page import sections

        return sections(self)


def probe_id(identity: dict[str, Any]) -> str:
    """The name that follows from what was probed, and how."""
    return identity_hash("Probe", identity)


def keep_probe(record: ProbeRecord, store: Path) -> Path:
    """Write the record into the store of a folder, which is made if need be; one that is there stays."""
    root = RunStore(store, create=True).root
    path = probe_path(record.name, record.probe, root)
    if path.exists():
        try:
            read_probe(path)
            return path
        except RecordError as error:
            set_aside(root, path, str(error))
    write_atomically(path, record_text(record.model_dump(mode="json")))
    return path


def probe_path(name: str, probe: str, store: Path) -> Path:
    """Where the record of a probe is kept."""
    return store / FOLDER / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', name).strip('.-') or 'model'}-{probe[:12]}.json"


def read_probe(path: Path) -> ProbeRecord:
    """The record in a file; RecordError if it was edited, is damaged, or is of a newer version."""
    try:
        facts = json.loads(path.read_bytes())
        digest = facts.pop("digest", None)
        version = facts["schema_version"]
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise RecordError(f"{path} is not the record of a probe ({type(error).__name__}).") from error
    if json.loads(record_text(facts))["digest"] != digest:
        raise RecordError(f"{path} was edited since it was written: its digest does not fit the rest of it.")
    if version not in (1, 2):
        raise RecordError(
            f"{path} has schema_version={version}, and this recallscope reads 1 and 2. Upgrade recallscope."
        )
    try:
        if version == 1:
            from recallscope.measuring.checkpoints.earlier import from_schema_1

            facts = from_schema_1(facts)
        return ProbeRecord.model_validate(facts)
    except (KeyError, TypeError) as error:
        raise RecordError(f"{path} is not the record of a probe ({type(error).__name__}: {error}).") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise RecordError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}.") from error


def probes_in(store: Path) -> Iterator[ProbeRecord]:
    """Every sound record of a store, in order of name; what cannot be read is passed over, and left as it is."""
    for path in sorted((store / FOLDER).glob("*.json")):
        try:
            yield read_probe(path)
        except RecordError:
            continue


def find_probes(names: Sequence[str], store: Path) -> list[ProbeRecord]:
    """Records by their file, by the name of the checkpoint or by the beginning of their id."""
    there = list(probes_in(store))
    found = []
    for name in names:
        if name.endswith(".json") and Path(name).is_file():
            found.append(read_probe(Path(name)))
            continue
        short = Path(name).name
        fitting = [record for record in there if record.name == short or record.probe.startswith(short)]
        if len(fitting) != 1:
            known = ", ".join(f"{record.name} ({record.probe[:8]})" for record in fitting or there) or "none"
            what = "is the name of several probes" if fitting else "is no probe"
            raise ValueError(f"{name!r} {what} in {store}: {known}. Name one by its id or its file.")
        found.append(fitting[0])
    return found

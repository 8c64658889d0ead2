"""What a probe leaves behind: plain data, read without torch, with a digest that shows whether it was edited.

STORE/probes/NAME-ID.json, beside the runs of a store. ID is a hash of the weights, the words and the settings: the same
probe has the same name, and is not measured twice. A file that is there is never overwritten.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, Field, NonNegativeInt, ValidationError

from recallscope.atomic import write_atomically
from recallscope.records import RecordError, record_text
from recallscope.runs.store import RunStore, set_aside
from recallscope.specs import Fraction, Frozen, identity_hash

FOLDER = "probes"
Interval = tuple[float | None, float | None]


class _Part(Frozen):
    model_config = ConfigDict(extra="ignore", strict=False)


class Point(_Part):
    """All questions at one number of facts."""

    num_facts: int
    contexts: int
    asked: int
    right_per_context: list[int]
    recall: Fraction = Field(description="the value has the largest logit among all values")
    interval: tuple[Fraction, Fraction] = Field(description="95 %, bootstrap over contexts and questions")
    recall_of_all: Fraction = Field(description="the value has the largest logit of the whole vocabulary")
    prior: Fraction = Field(description="right without having read a fact")
    shuffled: Fraction = Field(description="right if the values are dealt to other keys: facts without their pairing")
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
    """The number of facts at which recall falls to a target."""

    target: Fraction
    num_facts: float | None = Field(description="by the probit curve; None where it is not between measured numbers")
    interval: Interval = Field(description="95 %; an end that the bootstrap does not bound is None")
    logistic: float | None
    interpolated: float | None
    reason: str


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

    schema_version: Literal[1] = 1
    probe: str = Field(description="24 hex digits: a hash of weights, words and settings")
    name: str
    identity: dict[str, Any]
    model: dict[str, Any] = Field(description="class, parameters, layers, sizes")
    settings: dict[str, Any]
    keys: dict[str, int] = Field(description="words and their tokens")
    values: dict[str, int]
    tokens_per_fact: int
    recalls: bool
    verdict: str
    points: list[Point]
    n_50: Crossing
    n_90: Crossing
    curves: dict[str, tuple[float, float]] = Field(
        description="intercept and slope, by form (`measuring.checkpoints.curves`)"
    )
    state_parts: dict[str, int] = Field(description="numbers by name, at the largest number of facts")
    most_bits: float
    bits_per_entry: float | None = Field(description="most_bits over the state it was held in, both kinds together")
    law: LawSays | None
    copies_differ: float | None = Field(description="logits asked from copies and from scratch, largest distance")
    inside: Inside | None = None
    seconds: float
    environment: dict[str, str]

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
    if version != 1:
        raise RecordError(f"{path} has schema_version={version}, and this recallscope reads 1. Upgrade recallscope.")
    try:
        return ProbeRecord.model_validate(facts)
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

"""What a run leaves behind. A record is read and written without torch, and says which schema it follows.

A record can be read in two ways. `read_facts` takes the file as plain data: it needs neither the code of the
architecture nor this version of the package, and is what lists, filters, fits and plots. `parse_record` makes a
`RunRecord` with a full `RunSpec`, which is what evaluating or continuing a run needs.

In its file a record carries two digests: `digest`, SHA-256 of the canonical JSON of everything else in the file, and
`weights_digest`, SHA-256 of the weights file, if weights were kept. A record whose digest does not fit was edited, or
damaged, since it was written. Records of schema 2 may have none, and nothing can be said about those; later ones must
have it, and it is checked whatever the schema: in all schemas to come it is made in the same way.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import ConfigDict, Field, NonNegativeInt, ValidationError, model_validator
from pydantic_core import from_json

from recallscope.health import is_number, warning_of
from recallscope.notebook import html_table
from recallscope.specs import (
    RESULTS,
    Fraction,
    Frozen,
    RunSpec,
    Value,
    canonical_json,
    check_saved_model,
    current_kind,
    flat_fields,
    identity_hash,
)

SCHEMA_VERSION, OLDEST = 3, 2  # in schema 2 the digest could be left out
MOST = 10**15  # steps or queries of a run; what is beyond is damage
MOST_BYTES, MOST_FIELDS = 10**7, 1000  # of a record, which has a few thousand, and of its spec
_RUN_NAME = re.compile("[0-9a-f]{24}")


class Evaluation(Frozen):
    """One look at the validation set while training."""

    step: NonNegativeInt
    loss: float | None = Field(description="mean since the last evaluation; None if it was not finite")
    accuracy: Fraction
    in_context: Fraction | None = Field(None, description="fraction of answers that are some value of the context")
    binding: float | None = Field(None, description="`binding`; None for one fact and in older records")


def binding(accuracy: float, in_context: float | None, num_facts: int | None) -> float | None:
    """Are answers from the context bound to their keys? 0 if any value of it is named, 1 if always the key's own.

    (a/c - 1/N_f) / (1 - 1/N_f) with the accuracy a and the fraction c of answers that are some value of the context: of
    those, 1/N_f are right by luck. None where it means nothing: for a single fact.
    """
    if in_context is None or num_facts is None or num_facts < 2:
        return None
    return 0.0 if in_context == 0 else (accuracy / in_context - 1 / num_facts) / (1 - 1 / num_facts)


class RunRecord(Frozen):
    """The result of one RunSpec, complete enough to be compared, fitted and drawn without its weights."""

    model_config = ConfigDict(extra="ignore")

    schema_version: Literal[2, 3] = 3
    run: str = Field(description="the run's name, a hash of its identity")
    identity: dict[str, Any] = Field(description="kinds of the spec's parts, and the fields that differ from defaults")
    spec: RunSpec
    test_accuracy: Fraction = Field(description="of the best state, over all queries of the test set")
    val_accuracy: Fraction = Field(description="best over the evaluations")
    in_context: Fraction | None = Field(None, description="fraction of test answers that are some value of the context")
    binding: float | None = Field(None, description="of the test set; None for one fact, or in an older record")
    top_k: dict[str, Fraction] | None = Field(
        None, description="by k: fraction of test queries whose answer is among the k best; None in an older record"
    )
    test_queries: NonNegativeInt = Field(description="questions behind test_accuracy")
    best_step: NonNegativeInt = Field(description="step of the state that was tested")
    steps: NonNegativeInt = Field(description="optimiser steps taken")
    seconds: Annotated[float, Field(ge=0)] = Field(description="wall time, resumed parts added up")
    parameters: NonNegativeInt | None = Field(None, description="numbers that were trained")
    state_entries: NonNegativeInt | None = Field(
        None, description="of the state that is stored; None if it is not known"
    )
    effective_entries: NonNegativeInt | None = Field(None, description="of the state that is read; None if not known")
    history: list[Evaluation] = Field(default_factory=list)
    levels_ended: list[NonNegativeInt] | None = Field(None, description="steps at which a curriculum left its levels")
    by_facts: dict[str, Fraction] | None = Field(
        None, description="test accuracy by number of facts, after zoology's mixture"
    )
    flag: str = Field("", description="diverged, still-improving, at-chance (`health`); empty for a run without fault")
    environment: dict[str, str] = Field(default_factory=dict, description="versions, device, threads, kernels")

    @property
    def fields(self) -> dict[str, Value]:
        """The run's fields as one flat table."""
        return flat_fields(self.spec.model_dump(mode="json"))

    def _repr_html_(self) -> str:
        """For notebooks: the result, and the run's fields."""
        title = f"run {self.run[:8]}: test accuracy {self.test_accuracy:.4f} over {self.test_queries:,} queries"
        return html_table(title, self.fields, f"{self.steps} steps in {self.seconds:.1f} s")

    @model_validator(mode="before")
    @classmethod
    def _identity_follows_from_the_spec(cls, data: Any) -> Any:
        if isinstance(data, dict) and "identity" not in data and isinstance(data.get("spec"), RunSpec):
            identity = data["spec"].identity()
            return {**data, "identity": identity, "run": data.get("run") or data["spec"].content_hash()}
        return data

    @model_validator(mode="after")
    def _the_name_is_the_content(self) -> Self:
        if self.run != self.spec.content_hash():
            raise ValueError(
                f"run={self.run!r} is not the name of its spec ({self.spec.content_hash()!r}): "
                f"the record was edited or belongs to another spec. Run it again."
            )
        return self


class RecordError(ValueError):
    """A text that contradicts itself or is no record at all; the message says how."""


class NewerRecordError(RecordError):
    """Sound, but this installation cannot make a spec of it: it needs a newer version, or code that is not here."""


def is_run_name(name: object) -> bool:
    """24 hex digits, as `content_hash` gives."""
    return isinstance(name, str) and _RUN_NAME.fullmatch(name) is not None


def read_facts(text: str | bytes) -> dict[str, Any]:
    """A record as plain data, of this schema or another; RecordError only if the text contradicts itself."""
    if len(text) > MOST_BYTES:
        raise RecordError(f"longer than the {MOST_BYTES:,} bytes that a record may have")
    try:
        facts: Any = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise RecordError(f"not JSON: {error}") from error
    if not isinstance(facts, dict):
        raise RecordError(f"a record is a JSON object, this is a {type(facts).__name__}")
    version = facts.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool) or version < OLDEST:
        raise RecordError(f"schema_version={version!r} is not an integer from {OLDEST}: not a record of recallscope")
    if not is_run_name(facts.get("run")):
        raise RecordError(f"run={facts.get('run')!r} is not the name of a run (24 hex digits)")
    parts = spec.values() if isinstance(spec := facts.get("spec"), dict) else ()
    if sum(len(part) for part in parts if isinstance(part, dict)) > MOST_FIELDS:
        raise RecordError(f"its spec has more than {MOST_FIELDS:,} fields")
    if "digest" not in facts and version > OLDEST:
        raise RecordError(f"its digest is missing, and a record of schema {version} has one: the record was edited")
    if "digest" in facts and facts["digest"] != _digest(facts):
        raise RecordError("edited since it was written: its digest does not fit the rest of it")
    if version <= SCHEMA_VERSION:
        _check(facts)
    return facts


def record_text(facts: Mapping[str, Any] | RunRecord, weights_digest: str | None = None) -> bytes:
    """The text of a record's file, digests included."""
    facts = facts.model_dump(mode="json") if isinstance(facts, RunRecord) else dict(facts)
    if weights_digest is not None:
        facts["weights_digest"] = weights_digest
    facts["digest"] = _digest(facts)
    return file_text(facts)


def file_text(facts: Mapping[str, Any]) -> bytes:
    """A record as the text of its file, with the digests it has."""
    return json.dumps(facts, indent=1, ensure_ascii=False).encode() + b"\n"


def _digest(facts: Mapping[str, Any]) -> str:
    rest = canonical_json({name: value for name, value in facts.items() if name != "digest"})
    return hashlib.sha256(rest.encode()).hexdigest()


def _check(facts: Mapping[str, Any]) -> None:
    """Does the record agree with itself: name, identity, spec, and numbers that can be?"""
    spec: Any = facts.get("spec")
    identity: Any = facts.get("identity")
    if not isinstance(spec, dict):
        raise RecordError(f"spec is a {type(spec).__name__}, not a table of fields")
    if not isinstance(identity, dict):
        raise RecordError(f"identity is a {type(identity).__name__}, not a table of fields")
    try:
        name = identity_hash("RunSpec", identity)
    except ValueError as error:
        raise RecordError(f"its name cannot follow from its spec: {error}") from error
    if facts["run"] != name:
        raise RecordError(f"run={facts['run']!r} is not the name of its spec ({name!r}): the record was edited")
    if not _agrees(identity, spec):
        raise RecordError("spec and identity disagree: the record was edited")
    if isinstance(spec.get("model"), dict):
        try:
            check_saved_model(spec["model"])
        except ValueError as error:
            raise RecordError(f"{error}: the record was edited") from error
    for name in ("test_accuracy", "val_accuracy"):
        if not (is_number(facts.get(name)) and 0 <= facts[name] <= 1):
            raise RecordError(f"{name}={facts.get(name)!r} is not a number from 0 to 1")
    for name in ("test_queries", "best_step", "steps", "seconds"):
        if not (is_number(facts.get(name)) and 0 <= facts[name] <= MOST):
            raise RecordError(f"{name}={facts.get(name)!r} is not a number from 0 to {MOST:.0e}")
    if not isinstance(facts.get("history", []), list) or not isinstance(facts.get("environment", {}), dict):
        raise RecordError("history is not a list, or environment not a table")


def _agrees(identity: Any, spec: Any) -> bool:
    """Every field of the identity stands in the spec."""
    if isinstance(identity, dict) and isinstance(spec, dict):
        spec = _current(spec)
        return all(name in spec and _agrees(value, spec[name]) for name, value in _current(identity).items())
    return bool(identity == spec)


def _current(part: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a part of an identity, its kind by the name of today."""
    return {name: current_kind(v) if name == "kind" else v for name, v in part.items() if name != "schema"}


def row_of(facts: Mapping[str, Any] | RunRecord) -> dict[str, Value]:
    """A finished run as one flat row: its name, the fields of its spec, its results."""
    if isinstance(facts, RunRecord):
        facts = facts.model_dump(mode="json")
    spec = facts.get("spec")
    row: dict[str, Value] = {"run": facts["run"], "status": "done"}
    row |= flat_fields(spec if isinstance(spec, Mapping) else {})
    row |= {name: value if is_number(value := facts.get(name)) else None for name in RESULTS}
    return row | {"warning": warning_of(facts)}


def parse_record(text: str | bytes) -> RunRecord:
    """A record with its spec. RecordError if it is damaged, NewerRecordError if this installation lacks something."""
    return record_from(read_facts(text))


def record_from(facts: Mapping[str, Any]) -> RunRecord:
    """The record of sound facts; NewerRecordError if this installation cannot make one of them."""
    if facts["schema_version"] > SCHEMA_VERSION:
        raise NewerRecordError(
            f"run {facts['run']}: schema_version={facts['schema_version']}, and this recallscope reads up to "
            f"{SCHEMA_VERSION}. It was written by a newer version and is left as it is. Upgrade recallscope."
        )
    try:
        spec = _spec_of(facts)
        return RunRecord.model_validate({**facts, "spec": spec, "flag": warning_of(facts)})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "record"
        reason = f"{place}: {first['msg'].removeprefix('Value error, ').rstrip('.')}"
    except Exception as error:  # the code of an architecture from elsewhere may raise anything
        reason = f"{type(error).__name__}: {str(error).rstrip('.')}"
    raise NewerRecordError(
        f"run {facts['run']} cannot be made a run of this installation: {reason}. It is left as it is; a newer "
        f"recallscope, or the package that defines its parts, may be needed."
    )


def _spec_of(facts: Mapping[str, Any]) -> RunSpec:
    """The spec in full or, if it has fields that are not known here, by its identity: those are at their defaults."""
    try:
        return RunSpec.model_validate(facts["spec"])
    except ValidationError:
        if not isinstance(facts.get("identity"), dict):
            raise
        lean = {n: _current(v) if isinstance(v, dict) else v for n, v in facts["identity"].items() if n != "schema"}
        try:
            spec = RunSpec.model_validate(lean)
        except ValidationError:
            spec = None
        if spec is None or spec.content_hash() != facts["run"]:
            raise
        return spec


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """The fields in which two identities differ, old value first."""
    found = []
    for part in sorted({*old, *new}):
        a, b = old.get(part), new.get(part)
        if isinstance(a, dict) and isinstance(b, dict):
            a, b = _current(a), _current(b)
            found += [
                f"in {part}.{name} ({a.get(name, 'default')} there, {b.get(name, 'default')} here)"
                for name in sorted({*a, *b})
                if a.get(name) != b.get(name)
            ]
        elif a != b:
            found.append(f"in {part} ({'default' if a is None else a} there, {'default' if b is None else b} here)")
    changed = any("model.digest" in text for text in found)
    return (", ".join(found) or "in what it trains") + (": the model's source file has changed" if changed else "")

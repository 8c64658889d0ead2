"""What a run leaves behind. A record is read and written without torch, and says which schema it follows."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, ValidationError, model_validator

from recallscope.specs import Fraction, RunSpec, Spec

SCHEMA_VERSION = 1


class Evaluation(Spec):
    """One look at the validation set while training."""

    step: NonNegativeInt
    loss: float | None = Field(description="mean since the last evaluation; None if it was not finite")
    accuracy: Fraction


class RunRecord(Spec):
    """The result of one RunSpec, complete enough to be compared, fitted and drawn without its weights."""

    schema_version: Literal[1] = 1
    run: str = Field(description="content hash of the spec")
    spec: RunSpec
    test_accuracy: Fraction = Field(description="of the best state, over all queries of the test set")
    val_accuracy: Fraction = Field(description="best over the evaluations")
    test_queries: NonNegativeInt = Field(description="questions behind test_accuracy")
    best_step: NonNegativeInt = Field(description="step of the state that was tested")
    steps: NonNegativeInt = Field(description="optimiser steps taken")
    seconds: Annotated[float, Field(ge=0)] = Field(description="wall time, resumed parts added up")
    history: list[Evaluation] = Field(default_factory=list)
    environment: dict[str, str] = Field(default_factory=dict, description="versions, device, threads")

    @model_validator(mode="after")
    def _the_name_is_the_content(self) -> RunRecord:
        if self.run != self.spec.content_hash():
            raise ValueError(
                f"run={self.run!r} is not the content hash of the spec ({self.spec.content_hash()!r}): "
                f"the record was edited or belongs to another spec. Run it again."
            )
        return self


class RecordError(ValueError):
    """A text that is not a record this version can read; the message says why."""


def parse_record(text: str | bytes) -> RunRecord:
    """Read a record, or say in one sentence what is wrong with it."""
    try:
        data: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not JSON: {error}") from error
    if not isinstance(data, dict):
        raise RecordError(f"a record is a JSON object, this is a {type(data).__name__}")
    version = data.get("schema_version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise RecordError(f"schema_version={version!r} is not a whole number: not a record of ours")
    if version > SCHEMA_VERSION:
        raise RecordError(
            f"schema_version={version}, and this recallscope reads up to {SCHEMA_VERSION}: "
            f"written by a newer version; upgrade recallscope to read it"
        )
    try:
        return RunRecord.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "record"
        raise RecordError(f"{place}: {first['msg']} ({error.error_count()} fault(s) in all)") from error

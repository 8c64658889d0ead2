"""What a capacity is asked of: the field that is looked for, the runs, the target, and the law's variable."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

from pydantic import ValidationError
from scipy.special import ndtri

from recallscope.registry import suggestion
from recallscope.specs import LARGEST, TASKS, RunSpec, find_architecture, flat_fields, path_of
from recallscope.theory.law import Law, law_of
from recallscope.theory.problem import Problem, probability


@dataclass
class CapacityQuery:
    """Which field is looked for, in which runs, and for which target."""

    fields: dict[str, Any]  # of a RunSpec, by part, without the unknown
    unknown: str
    target: float

    def __post_init__(self) -> None:
        probability("target", self.target)
        kinds = (
            TASKS.find(self.fields["task"].get("kind") or "mqar"),
            find_architecture(str(self.fields["model"].get("kind") or "linear_mamba")),
        )
        path = path_of(self.unknown, *kinds)
        fields = kinds[1].model_fields
        sizes = [name for name, info in fields.items() if int in (info.annotation, *get_args(info.annotation))]
        known = path == ("task", "num_facts") or (path and path[0] == "model" and path[1] not in {*fields} - {*sizes})
        if path is None or not known:
            raise ValueError(
                f"{self.unknown!r} cannot be looked for. {suggestion(self.unknown, ['num_facts', *sizes])}"
            )
        self.path, self._known = path, dict[int, float]()
        self.sign = 1 if path[0] == "task" else -1  # more facts are harder, a larger model makes it easier

    def run_at(self, value: int) -> RunSpec:
        """The run with the unknown given."""
        part, name = self.path
        return RunSpec.model_validate(self.fields | {part: self.fields[part] | {name: value}})

    @cached_property
    def largest(self) -> int:
        """The largest value that makes a run; a ValidationError if not even 1 does."""
        self.run_at(1)
        good, step = 1, 1
        while good + step < LARGEST and step:
            if self._fits(good + step):
                good, step = good + step, 2 * step
            else:
                step //= 2
        return good

    def _fits(self, value: int) -> bool:
        try:
            self.run_at(value)
        except ValidationError:
            return False
        return True

    @cached_property
    def law(self) -> Law | None:
        """The law of the model, if there is one and it speaks about this task."""
        run = self.run_at(1)
        law = law_of(run.model, run.task.kind, getattr(run.task, "key_tokens", None))
        return law if law and self._by_law(law, 2) else None

    def _by_law(self, law: Law, value: int) -> float | None:
        try:
            p = float(law(Problem.from_fields(flat_fields(self.run_at(value)))))
        except ValueError:  # a task, or sizes, that the law does not speak about
            return None
        return p if p == p else None

    def variable(self, value: int) -> float:
        """What the accuracy is fitted against, rising with recall: the law's quantile, else log n with its sign."""
        if self.law is None:
            return -self.sign * math.log(value)
        if value not in self._known:
            p = self._by_law(self.law, value)
            self._known[value] = float(ndtri(min(max(0.0 if p is None else p, 1e-9), 1 - 1e-9)))
        return self._known[value]

    @property
    def wanted(self) -> str:
        """The answer's name."""
        return f"{'largest' if self.sign > 0 else 'least'} {self.unknown}"

    def guess_rate(self) -> float:
        """Recall by guessing a value."""
        return 2 / self.run_at(1).task.vocab_size

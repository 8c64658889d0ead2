"""Laws by name: what each says, where it comes from, where it holds. The commands and the docs read them here.

A law is a function of one `Problem` and an entry of the list `LAWS` at the end of its module, in `theory/laws/` or in a
file of your own:

    def my_law(problem: Problem) -> Array:
        return ndtr(np.sqrt(problem.N * problem.D / problem.N_f) - np.sqrt(2 * np.log(problem.V)))

    LAWS = [Law("my-law", my_law, summary="the product N D alone", reference="ours", domain=Domain("N <= D"))]

With RECALLSCOPE_PLUGINS=my_law.py it appears in `recallscope laws`, `predict`, `size` and `fit` (see
`recallscope.registry`). A module in `theory/laws/` is listed in `MODULES` below.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from importlib import import_module
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from recallscope.notebook import html_table
from recallscope.registry import Registry, load_plugins
from recallscope.specs import ARCHITECTURES, ModelSpec, find_architecture
from recallscope.theory.domain import Domain
from recallscope.theory.problem import FIELDS, PLAIN, TEMPLATES, Array, LawTask, Problem, problem_and_options
from recallscope.theory.reduction import one_head, one_layer

Weights = Literal["trained", "designed"]
Status = Literal["exact", "approximate", "hypothesis"]
DIMENSIONS = ("vocab_size", "num_facts", "embed_dim", "state_dim")
MODULES = (
    "sharing",
    "paper",
    "designed",
    "heads",
    "matrix_memory",
    "ageing",
    "full_mamba",
    "correlated_keys",
)  # of laws/, in this order


@dataclass(frozen=True, slots=True, eq=False)
class Law:
    """One law of the catalogue: a function of a Problem, and what is known about it."""

    name: str
    function: Callable[..., Array]
    """Of one Problem and keywords."""
    _: KW_ONLY
    weights: Weights = "trained"
    """Whether they are learned or hand-constructed."""
    models: tuple[str, ...] = ("linear_mamba",)
    """Architectures it applies to. An architecture's own law is named in its spec."""
    summary: str = ""
    """Default: the first line of the function's docstring."""
    reference: str = ""
    holds: str = ""
    """Where it holds, as text; `domain` has the part that can be computed. Default: the conditions of the domain."""
    status: Status = "hypothesis"
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the function, and of the inverse, that make this law one of a family."""
    domain: Domain | None = None
    """Where its derivation makes sense. Outside, the number has no meaning."""
    support: str = ""
    """The evidence for it, in one line. Default: `holds`."""
    compared: tuple[Domain, ...] = ()
    """What it was compared with: trained models, or circuits for laws of designed weights. An answer outside of all of
    these is extrapolated."""
    needs: tuple[str, ...] = DIMENSIONS
    """Fields a Problem must give. With head_pattern among them the law treats heads itself; else they are brought down
    to one head by the lower bound of Thm 4.7."""
    tasks: tuple[LawTask, ...] = PLAIN
    """Tasks it applies to."""
    with_heads: str | None = None
    """Name of the law that answers in its place where a head pattern is given and the layer is one."""
    with_templates: str | None = None
    """Name of the law that answers in its place where keys are correlated, the tasks `template_*`."""
    layers: Literal["printed", "joint", "one"] = "joint"
    """How layers count: Lambda N, Lambda N up to the rank D (see `effective_state`), or one layer only."""
    top_k: bool = False
    """Whether its function takes `top_k`, for the chance that the right value is among the k best."""
    fewest_facts: int = 1
    vocab_per_fact: int = 2
    """The function needs V > vocab_per_fact N_f."""
    inverse: Callable[..., float | None] | None = None
    """Closed form (problem, unknown, target) -> real solution, or None where there is none."""
    tolerance: float = 0.0
    """Largest error of its quick form against the exact one (`exact=True`); 0 if there is only one form."""

    def __post_init__(self) -> None:
        holds = self.holds or ("" if self.domain is None else self.domain.sentence)
        summary = self.summary or (self.function.__doc__ or "").partition("\n")[0]
        for name, value in {"summary": summary, "holds": holds, "support": self.support or holds}.items():
            object.__setattr__(self, name, value)  # frozen
        for name, value, allowed in (
            ("weights", self.weights, get_args(Weights)),
            ("status", self.status, get_args(Status)),
            ("layers", self.layers, ("printed", "joint", "one")),
            *(("needs", name, FIELDS) for name in self.needs),
        ):
            if value not in allowed:
                raise ValueError(f"law {self.name!r}: {name}={value!r} must be one of {', '.join(allowed)}.")

    @property
    def about(self) -> str:
        """Whose recall it predicts: designed weights, or the architectures it applies to."""
        return "designed" if self.weights == "designed" else ", ".join(self.models) or "any matrix memory"

    @property
    def heads(self) -> bool:
        """Whether the law takes the head pattern into account itself."""
        return "head_pattern" in self.needs

    def for_pattern(self, head_pattern: str | None) -> Law:
        """The law that answers for models with these heads: itself, or the one that treats them."""
        return find_law(self.with_heads) if head_pattern and self.with_heads else self

    def for_task(self, task: str) -> Law:
        """The law that answers for this task: itself, or the one for correlated keys."""
        return find_law(self.with_templates) if task in TEMPLATES and self.with_templates else self

    def missing(self, problem: Problem) -> list[str]:
        """Fields the law needs and the problem does not give."""
        return [name for name in self.needs if getattr(problem, name) is None]

    def __call__(self, problem: Problem | None = None, /, **fields: Any) -> Array:
        """Recall probability for a Problem, or for the fields of one as keywords.

        Lambda layers count as one with the effective state of Thm 4.6, heads as the single head of Thm 4.7.
        """
        problem, options = problem_and_options(problem, fields)
        return np.asarray(self.function(self._reduced(problem), **{**self.options, **options}))

    def _reduced(self, problem: Problem) -> Problem:
        """The problem as the function takes it: one layer, and one head unless the law treats heads itself."""
        if problem.task not in self.tasks:
            raise ValueError(
                f"law {self.name!r} applies to {' and '.join(self.tasks)}, not to {problem.task}"
                + (f"; use {self.with_templates!r}." if self.with_templates else ".")
            )
        if absent := self.missing(problem):
            raise ValueError(f"law {self.name!r} needs {', '.join(absent)}, which the problem does not give.")
        if not self.heads:
            problem = one_head(problem)
        if self.layers != "one":
            return one_layer(problem, self.layers)
        if np.any(problem.Lambda != 1):
            raise ValueError(f"law {self.name!r} applies to one layer only. Use num_layers=1, or another law.")
        return problem

    def in_domain(self, problem: Problem | None = None, /, **fields: Any) -> NDArray[np.bool_]:
        """Where the law's number has a meaning, per entry of a Problem."""
        problem, _ = problem_and_options(problem, fields)
        reduced = self._reduced(problem)
        return np.ones(reduced.shape, bool) if self.domain is None else self.domain.contains(reduced)

    def extrapolated(self, problem: Problem | None = None, /, **fields: Any) -> NDArray[np.bool_]:
        """Where the law was not compared with anything, per entry of a Problem."""
        problem, _ = problem_and_options(problem, fields)
        outside = np.ones(problem.shape, bool)
        for domain in self.compared:
            outside &= ~domain.contains(problem)
        return outside

    def limits(self, problem: Problem | None = None, /, **fields: Any) -> str:
        """Why an answer is extrapolated, with the conditions that the problem breaks; "" where it is not."""
        problem, _ = problem_and_options(problem, fields)
        if not self.compared:
            return "extrapolated: compared with no measurement"
        same_task = [domain for domain in self.compared if domain.task in (None, problem.task)] or self.compared
        nearest = min((domain.broken(problem) for domain in same_task), key=len)
        return f"extrapolated: compared for {', '.join(nearest)} only" if nearest else ""

    def _repr_html_(self) -> str:
        """For notebooks: what the law predicts, and where it holds."""
        shown = ("summary", "reference", "about", "holds", "status")
        facts = {name: value for name in shown if (value := getattr(self, name))}
        return html_table(f"law {self.name}", facts | {"needs": ", ".join(self.needs)})


class LawRegistry(Registry[Law]):
    """Laws by name: those in the list `LAWS` of each module above, then those of each plug-in."""

    def load(self) -> None:
        """Register the laws of all lists."""
        own = [import_module(f"recallscope.theory.laws.{name}") for name in MODULES]
        for module in (*own, *load_plugins()):
            laws = getattr(module, "LAWS", None)
            for law in laws if isinstance(laws, list) else ():
                self.add(law.name, law, module=module.__name__)


LAWS = LawRegistry("law", {})
find_law = LAWS.find

TRAINED_LAW, DESIGNED_LAW = "trained-sharing", "designed-improved"  # of the linear Mamba; an architecture names its own


def register_law(law: Law) -> None:
    """Add a law in a session or script; a file that is named in RECALLSCOPE_PLUGINS has a list `LAWS` instead."""
    LAWS.load()
    LAWS.add(law.name, law, module=law.function.__module__)


def recommended() -> dict[str, str]:
    """The law of each architecture that has one, and of hand-constructed weights ("designed")."""
    own = {kind: find_architecture(kind).law for kind in ARCHITECTURES.names()}
    return {"designed": DESIGNED_LAW} | {kind: name for kind, name in own.items() if name}


def own_law(model: str, *, designed: bool = False) -> str | None:
    """Name of the law for an architecture, trained or hand-constructed; None if the catalogue has none."""
    law = find_architecture(model).law
    return law if not designed else DESIGNED_LAW if law == TRAINED_LAW else None


def law_of(model: ModelSpec, task: str, key_tokens: int | None = None) -> Law | None:
    """The law that speaks about this very model on a task of this kind; with keys of several tokens, if it has windows
    for them.
    """
    if task in TEMPLATES and key_tokens and key_tokens > 1 and "conv_width" in type(model).model_fields:
        model = model.model_copy(update={"conv_width": model.size_of("conv_width") - key_tokens + 1})
    if model.own_law is None:
        return None
    law = find_law(model.own_law).for_task(task)
    return law if task in law.tasks else None


def laws_for(model: str = "linear_mamba", *, designed: bool = False) -> list[Law]:
    """The laws of an architecture, trained or hand-constructed; the recommended one first."""
    first, weights = own_law(model, designed=designed), "designed" if designed else "trained"
    like = (law for law in LAWS if law.name == first or (law.weights == weights and model in law.models))
    return sorted(like, key=lambda law: law.name != first)


def catalogue() -> dict[str, Any]:
    """Every law and what is known about it, as plain data, and which is recommended for what."""
    shown = ("name", "weights", "models", "summary", "reference", "holds", "support", "status", "needs")
    rows = [
        {field: getattr(law, field) for field in shown}
        | {"domain": None if law.domain is None else list(law.domain.conditions)}
        | {"compared": [{"task": one.task, "conditions": list(one.conditions)} for one in law.compared]}
        for law in LAWS
    ]
    return {"laws": rows, "recommended": recommended()}

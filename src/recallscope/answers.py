"""What `predict` and `size` answer, as plain data: the commands print it, `--json` writes it, the explorer shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from recallscope.architectures.linear import LinearSpec
from recallscope.architectures.multihead import MultiHeadSpec
from recallscope.specs import HeadPattern, TaskSpec, find_architecture, parse_task
from recallscope.theory.law import LAWS, RECOMMENDED, Law, find_law, laws_for
from recallscope.theory.problem import Problem
from recallscope.theory.reduction import one_head
from recallscope.theory.solve import LARGEST_EMBED, FrontierPoint, Question, Unknown, frontier, solve

Wanted = Unknown | Literal["frontier"]


def make_task(**fields: Any) -> TaskSpec:
    """A task from flags, leaving out those not given."""
    return parse_task({name: value for name, value in fields.items() if value is not None})


def check_heads(num_heads: int, head_pattern: HeadPattern | None, *embed_dims: int) -> None:
    """Several heads need a pattern, and dimensions that they can split."""
    if head_pattern is None and num_heads != 1:
        raise ValueError(
            f"num_heads={num_heads} needs --head-pattern: what the heads share decides what they add (Thm 4.7). "
            f"Mamba-2 itself uses MVA."
        )
    if head_pattern is not None:
        for D in embed_dims:
            heads = {"num_heads": num_heads, "head_pattern": head_pattern}
            MultiHeadSpec.model_validate({"embed_dim": D, "state_dim": 1, "expand": 1, "conv_width": 2} | heads)


def recommended_law(model: str) -> Law:
    """The law for an architecture or a kind of weights."""
    name = RECOMMENDED[model] if model in RECOMMENDED else find_architecture(model).law
    if name is None:
        raise ValueError(f"no law of the catalogue predicts the recall of {model}. Name one with --law, or train it.")
    return find_law(name)


def law_or_nan(law: Law, problem: Problem) -> NDArray[np.float64]:
    """The law's values for a Problem, nan outside of its domain, and where it does not apply to the task at all."""
    try:
        with np.errstate(all="ignore"):
            return np.atleast_1d(np.where(law.in_domain(problem), law(problem), np.nan))
    except ValueError:
        if problem.shape in ((), (1,)):
            return np.full(1, np.nan)
        return np.concatenate([law_or_nan(law, problem.take([index])) for index in range(problem.D.size)])


def _why_nothing(law: Law, problem: Problem) -> str:
    """Why a law has no number for a Problem."""
    try:
        law(problem)
    except ValueError as error:
        return f"no answer: {error}"
    return f"no answer: it has a meaning for {law.domain.sentence if law.domain else 'other sizes'} only"


def question(words: Mapping[str, Any]) -> tuple[TaskSpec, Problem, list[Law]]:
    """The task and the problem of the flags of `predict`, checked, and the laws that answer it.

    Laws that are named in `law` answer alone; else the recommended one comes first, and all that apply follow.
    """
    task = make_task(kind=words["task"], **{name: words[name] for name in ("vocab_size", "num_facts", "length")})
    if not words["embed_dim"] or not words["state_dim"]:
        raise ValueError(
            "--embed-dim and --state-dim need a number each, or several. Try --embed-dim 64 --state-dim 16."
        )
    for D in words["embed_dim"]:
        for N in words["state_dim"]:
            LinearSpec(embed_dim=D, state_dim=N, num_layers=words["num_layers"])  # type: ignore[call-arg]
    check_heads(words["num_heads"], words["head_pattern"], *words["embed_dim"])
    all_D, all_N = (grid.ravel() for grid in np.meshgrid(words["embed_dim"], words["state_dim"], indexing="ij"))
    problem = Problem.from_words({**words, "embed_dim": all_D, "state_dim": all_N})
    laws = [find_law(name) for name in words["law"]]
    if not laws:
        best = recommended_law(words["model"])
        first = best.for_pattern(words["head_pattern"]) if words["num_layers"] == 1 else best
        ordered = dict.fromkeys([first, best, *laws_for(words["model"]), *LAWS])
        laws = [law for law in ordered if not law.missing(problem)]
    return task, problem, laws


def prediction(words: Mapping[str, Any], *, others: bool = True) -> dict[str, Any]:
    """What the laws say about every pair of D and N; without `others`, only the first law unless some are named.

    MHA has a lower and an upper bound by every law for one head (Thm 4.7).
    """
    task, problem, laws = question(words)
    rows = _rows(laws if others or words["law"] else laws[:1], problem, named=bool(words["law"]))
    headline = rows[0]["headline"] if len(rows) == 1 else None
    return {"task": task.model_dump(mode="json"), "headline": headline, "rows": rows}


def _rows(laws: list[Law], problem: Problem, *, named: bool) -> list[dict[str, Any]]:
    """One row per pair of D and N."""
    cells = [problem.take(index) for index in range(problem.D.size)]
    rows: list[dict[str, Any]] = [
        {"embed_dim": int(cell.D), "state_dim": int(cell.N), "laws": {}, "extrapolated": {}} for cell in cells
    ]
    asked = [("laws", law, problem) for law in laws]
    if problem.head_pattern == "MHA":
        asked += [("laws_upper", law, one_head(problem, "upper")) for law in laws if not law.heads]
    for side, law, question in asked:
        # a law that was asked for by name says why it does not apply; the others step aside
        for row, p in zip(rows, law(question) if named else law_or_nan(law, question), strict=True):
            row.setdefault(side, {})[law.name] = float(p)
    for law in laws:
        outside = np.broadcast_to(law.extrapolated(problem), (len(rows),))
        for row, cell, beyond in zip(rows, cells, outside, strict=True):
            told = law.limits(cell) if beyond else ""
            nothing = np.isnan(row["laws"][law.name])
            row["extrapolated"][law.name] = _why_nothing(law, cell) if nothing else told
    first = laws[0]
    for row, cell in zip(rows, cells, strict=True):
        inside = (domain.sentence for domain in first.compared if domain.contains(cell))
        row["headline"] = {
            "probability": row["laws"][first.name],
            **({"upper": row["laws_upper"][first.name]} if first.name in row.get("laws_upper", {}) else {}),
            "law": first.name,
            "compared": next(inside, None),
            "extrapolated": row["extrapolated"][first.name],
            "support": first.support,
        }
    return rows


def sizing(asked: Question, unknown: Wanted, *, model: str = "trained", max_points: int = 256) -> dict[str, Any]:
    """The size that a question leaves out, or all minimal pairs of D and N with what they cost in an architecture.

    Pairs are thinned to `max_points`.
    """
    answer: dict[str, Any] | None = None
    points: list[FrontierPoint] = []
    if unknown == "frontier":
        points = frontier(asked, model="linear" if model in RECOMMENDED else model, max_points=max_points)
        answer, reason = _smallest_state(points, asked)
    else:
        found = solve(asked, unknown)
        reason = found.reason
        if found.value is not None:
            answer = {"embed_dim": asked.embed_dim, "state_dim": asked.state_dim, unknown: found.value}
            answer |= {"probability": found.probability, "extrapolated": found.extrapolated}
            answer |= {} if found.real is None else {"real": found.real}
    shown = {"target": asked.target, "law": asked.law.name, "answer": answer, "reason": reason}
    return shown | {"frontier": [asdict(point) for point in points]}


def _smallest_state(points: list[FrontierPoint], asked: Question) -> tuple[dict[str, Any] | None, str]:
    """The minimal pair with the smallest state, and what is said of it."""
    if points:
        best = min(points, key=lambda point: (point.extrapolated != "", point.state_entries, point.embed_dim))
        starred = any(point.extrapolated for point in points)
        which = "smallest state" + (" (all are extrapolated)" if best.extrapolated else " without *" if starred else "")
        return asdict(best), which
    p = float(asked.evaluate(embed_dim=LARGEST_EMBED, state_dim=LARGEST_EMBED))
    return None, f"unreachable: even embed_dim=state_dim={LARGEST_EMBED} gives p={p:.6f}: the task sets a ceiling."

"""What `predict` and `size` answer, as plain data: the commands print it, `--json` writes it, the explorer shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from recallscope.architectures.mamba import LinearMambaSpec, MultiHeadSpec
from recallscope.circuits.circuit import Circuit, CircuitSizes
from recallscope.specs import HeadPattern, RunSpec, TaskSpec, flat_fields, parse_task
from recallscope.state_precision import StatePrecision
from recallscope.theory.law import DIMENSIONS, LAWS, Law, find_law, law_of, laws_for, own_law
from recallscope.theory.laws.precision import (
    Memory,
    absmax_square,
    allowed_loss,
    bits_needed,
    longest_context,
    snr_share,
)
from recallscope.theory.laws.sharing import pair_counts
from recallscope.theory.problem import ASKED, TEMPLATE_FIELDS, TEMPLATES, Problem, probability
from recallscope.theory.reduction import one_head
from recallscope.theory.solve import LARGEST_EMBED, FrontierPoint, SizeQuery, Unknown, frontier, solve

RANDOM_CODES = "for codes as good as random; recallscope inspect WEIGHTS measures the absmax/rms of trained heads"
Wanted = Unknown | Literal["frontier"]


def make_task(**fields: Any) -> TaskSpec:
    """A task from flags, leaving out those not given."""
    return parse_task({name: value for name, value in fields.items() if value is not None})


def _more(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a task beside V and N_f, which not every task has."""
    return {name: fields[name] for name in (TEMPLATE_FIELDS if fields["task"] in TEMPLATES else ("length",))}


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


def recommended_law(model: str, *, designed: bool = False) -> Law:
    """The law for an architecture, trained or hand-constructed."""
    name = own_law(model, designed=designed)
    if name is None:
        what = f"a hand-constructed {model}" if designed else model
        raise ValueError(f"no law of the catalogue predicts the recall of {what}. Name one with --law, or train it.")
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


def question(fields: Mapping[str, Any]) -> tuple[TaskSpec, Problem, list[Law]]:
    """The task and the problem of the flags of `predict`, checked, and the laws that answer it.

    Laws that are named in `law` answer alone; else the recommended one comes first, and all that apply follow.
    """
    task = make_task(
        kind=fields["task"], **{name: fields[name] for name in ("vocab_size", "num_facts")}, **_more(fields)
    )
    if not fields["embed_dim"] or not fields["state_dim"]:
        raise ValueError(
            "--embed-dim and --state-dim need a number each, or several. Try --embed-dim 64 --state-dim 16."
        )
    for D in fields["embed_dim"]:
        for N in fields["state_dim"]:
            LinearMambaSpec(embed_dim=D, state_dim=N, num_layers=fields["num_layers"])  # type: ignore[call-arg]
    check_heads(fields["num_heads"], fields["head_pattern"], *fields["embed_dim"])
    all_D, all_N = (grid.ravel() for grid in np.meshgrid(fields["embed_dim"], fields["state_dim"], indexing="ij"))
    problem = Problem.from_fields({**fields, "embed_dim": all_D, "state_dim": all_N})
    laws = [find_law(name) for name in fields["law"]]
    if not laws:
        family = {"model": fields["model"], "designed": fields["designed"]}
        best = recommended_law(**family).for_task(problem.task)
        if problem.task not in best.tasks:
            raise ValueError(
                f"no law predicts the recall of {fields['model']} at {problem.task}: with correlated keys there are "
                f"laws of memories that store facts only. Try --model mlstm, delta_net, mesa_net or attention."
            )
        first = best.for_pattern(fields["head_pattern"]) if fields["num_layers"] == 1 else best
        ordered = dict.fromkeys([first, best, *laws_for(**family), *LAWS])
        laws = [law for law in ordered if not law.missing(problem) and problem.task in law.tasks]
    if (k := fields.get("top_k", 1)) != 1:
        laws = _among_best(laws, k, fields["vocab_size"] // 2, named=bool(fields["law"]))
    return task, problem, laws


def _among_best(laws: list[Law], k: int, num_values: int, *, named: bool) -> list[Law]:
    """The laws for the chance that the right value is among the k best, those that have one."""
    if not 1 < k < num_values:
        raise ValueError(f"--top-k {k}: of {num_values} values, k can be 1 to {num_values - 1}. Try --top-k 5.")
    able = [replace(law, options={**law.options, "top_k": k}) for law in laws if law.top_k]
    if len(able) < len(laws) if named else not able:
        some = ", ".join(law.name for law in LAWS if law.top_k)
        raise ValueError(f"--top-k: only these laws predict how often the right value is among the k best: {some}.")
    return able


def prediction(fields: Mapping[str, Any], *, others: bool = True) -> dict[str, Any]:
    """What the laws say about every pair of D and N; without `others`, only the first law unless some are named.

    MHA has a lower and an upper bound by every law for one head (Thm 4.7).
    """
    task, problem, laws = question(fields)
    rows = _rows(laws if others or fields["law"] else laws[:1], problem, named=bool(fields["law"]))
    headline = rows[0]["headline"] if len(rows) == 1 else None
    k = fields.get("top_k", 1)
    return {"task": task.model_dump(mode="json"), "top_k": k, "headline": headline, "rows": rows}


def stored_prediction(fields: Mapping[str, Any], precision: StatePrecision) -> dict[str, Any]:
    """The first law's recall for every pair of D and N with the state stored in few bits after every token.

    Rounding takes a share of SNR², which is N D over the writes: the law is asked for as much less of N. Writes are
    those that a query finds on average; nothing is taken to fade, and every scale group is one of random codes.
    """
    _, problem, laws = question(fields)
    cells, found = [problem.take(index) for index in range(problem.D.size)], []
    for cell in cells:
        writes = max(2, round(float(np.mean(pair_counts(cell, slot=(cell.G - 1) / 2).kv))))
        sizes = {"vocab_size": int(cell.V) // 2, "key_dim": int(cell.N), "value_dim": int(cell.D)}
        share = snr_share(Memory(num_facts=writes, **sizes), precision)
        less = cell.replace(state_dim=max(1.0, float(cell.N) * share))
        found.append(float(law_or_nan(laws[0], less)[0]))
    return {
        "label": precision.label,
        "precision": precision.model_dump(mode="json"),
        "law": laws[0].name,
        "rows": found,
        "holds": RANDOM_CODES,
    }


def state_bits(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Bits of an integer state entry, by scale and rounding, that cost 1 % of recall at the target."""
    D, N, V, T = fields["embed_dim"], fields["state_dim"], fields["vocab_size"] or 32768, fields["bits"]
    if D is None or N is None:
        raise ValueError("--bits needs --embed-dim and --state-dim: rows, columns and blocks are as long as these say.")
    if T < 1:
        raise ValueError(f"--bits {T}: a number of writes, or a decay time in tokens, is at least 1. Try --bits 1024.")
    delta = allowed_loss(V, recall=probability("target", fields["target"]))
    groups = {"tensor": N * D, "row": N, "column": D, "block32": min(32, N), "block16": min(16, N)}
    rows = []
    for scale, group in groups.items():
        A = absmax_square(group) ** 0.5
        ways = {
            "nearest": bits_needed(T, A, delta=delta),
            "stochastic": bits_needed(T, A, delta=delta, stochastic=True),
            "every_16": bits_needed(T, A, delta=delta, every=16),
            "once": bits_needed(1, A, delta=delta),
        }
        rows.append({"scale": scale, "absmax_over_rms": A} | ways)
    formats = [StatePrecision.of(name) for name in ("fp8-e5m2", "fp8-e4m3", "bf16", "fp16")]
    longest = {one.format: longest_context(one, delta=delta) for one in formats}
    return {"writes": T, "target": fields["target"], "loss": 0.01, "delta": delta, "rows": rows, "longest": longest}


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
        if named:
            law(question)  # says why it does not apply; the others step aside
        for row, p in zip(rows, law_or_nan(law, question), strict=True):
            row.setdefault(side, {})[law.name] = float(p)
    for law in laws:
        outside = np.broadcast_to(law.extrapolated(problem), (len(rows),))
        for row, cell, beyond in zip(rows, cells, outside, strict=True):
            limits = law.limits(cell) if beyond else ""
            nothing = np.isnan(row["laws"][law.name])
            row["extrapolated"][law.name] = _why_nothing(law, cell) if nothing else limits
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


def run_predictions(run: RunSpec) -> list[tuple[str, float]]:
    """What the law of the run's architecture, and the paper's own, predict for it; none where they do not apply."""
    own = law_of(run.model, run.task.kind, getattr(run.task, "key_tokens", None))
    names = dict.fromkeys(([own.name] if own else []) + (["unified"] if own and not own.heads else []))
    try:
        problem = Problem.from_fields(flat_fields(run.model_dump(mode="json")))
    except ValueError:  # a task without a law
        return []
    found = [(name, float(law_or_nan(find_law(name), problem)[0])) for name in names]
    return [(name, p) for name, p in found if p == p]


def circuit_predictions(task: TaskSpec, circuit: Circuit, sizes: CircuitSizes) -> dict[str, float]:
    """What a circuit's laws predict for a task, where they apply to it; they assume random filler."""
    fields = task.model_dump(mode="json")
    if not circuit.laws or fields.get("filler") != "random":
        return {}
    flat = fields | {"task": task.kind, "embed_dim": sizes.embed_dim, "state_dim": sizes.state_dim}
    if circuit.head_pattern:
        flat |= {"head_pattern": circuit.head_pattern, "num_heads": sizes.num_heads}
    problem = Problem.from_fields(flat)
    options = {word: getattr(sizes, field) for word, field in circuit.law_options.items()}
    laws = [find_law(name) for name in circuit.laws if name in LAWS]
    asked = [replace(law, options={**law.options, **options}) for law in laws]
    found = {law.name: float(law_or_nan(law, problem)[0]) for law in asked}
    return {name: p for name, p in found.items() if p == p}


def probability_text(row: Mapping[str, Any], law: str) -> str:
    """A law's number in a row of a prediction, or its two bounds; a dash where it has no meaning."""
    ends = [row["laws"][law], row.get("laws_upper", {}).get(law)]
    texts = ["-" if p != p else f"{p:.3f}" if p <= 0.9995 else f"{p:.6g}" for p in ends if p is not None]
    return "..".join(texts)


def marked(row: Mapping[str, Any], law: str) -> str:
    """The same with a star where it is extrapolated."""
    text = probability_text(row, law)
    return f"{text}*" if row["extrapolated"][law] and text != "-" else text


def basis(headline: Mapping[str, Any]) -> list[str]:
    """What the headline of a prediction rests on: what its law was compared with, or why it is extrapolated."""
    if headline["extrapolated"]:
        return [headline["support"], headline["extrapolated"]]
    return [f"compared for {headline['compared']}", headline["support"]]


def size_query(fields: Mapping[str, Any]) -> tuple[SizeQuery, Wanted]:
    """What the flags of `size` ask: the known sizes, checked, and which is wanted."""
    probability("target", fields["target"])
    name, pattern = fields["law"], fields["head_pattern"]
    law = find_law(name) if name else recommended_law(fields["model"], designed=fields["designed"]).for_pattern(pattern)
    law = law.for_task(fields["task"])
    unknown = _unknown(fields)
    _check_known(fields)
    known = {name: fields[name] for name in ASKED} | {"law": law, "target": fields["target"]}
    return SizeQuery(**known | ({} if unknown == "frontier" else {unknown: None})), unknown


def _unknown(fields: Mapping[str, Any]) -> Wanted:
    missing: list[Any] = [name for name in DIMENSIONS if fields[name] is None]
    if chosen := fields["solve_for"]:
        solvable = (*DIMENSIONS, "num_layers")
        if chosen not in solvable:
            raise ValueError(f"--solve-for {chosen}: it must be one of {', '.join(solvable)}.")
        if others := [name for name in missing if name != chosen]:
            raise ValueError(f"--solve-for {chosen} also needs {', '.join(others)}.")
        return cast(Wanted, chosen)
    if missing == ["embed_dim", "state_dim"]:
        return "frontier"
    if not missing:
        raise ValueError(
            "nothing is left to find: leave out one of --embed-dim, --state-dim, --num-facts, --vocab-size, "
            "or say --solve-for num_layers. To get the probability itself, use recallscope predict."
        )
    if len(missing) > 1:
        raise ValueError(
            f"too much is left to find: {', '.join(missing)}. Leave out one of them, or both --embed-dim and "
            f"--state-dim to see all minimal pairs."
        )
    wanted: Wanted = missing[0]
    return wanted


def _check_known(fields: Mapping[str, Any]) -> None:
    """The known sizes must make sense as a task and a model; stand-ins take the place of the unknown."""
    N_f, D, N = (1 if fields[name] is None else fields[name] for name in ("num_facts", "embed_dim", "state_dim"))
    V = 2 * max(N_f, 1) + 8 if fields["vocab_size"] is None else fields["vocab_size"]
    make_task(kind=fields["task"], vocab_size=V, num_facts=N_f, **_more(fields))
    LinearMambaSpec(embed_dim=D, state_dim=N, num_layers=fields["num_layers"])  # type: ignore[call-arg]
    M = fields["num_heads"]
    check_heads(M, fields["head_pattern"], M if fields["embed_dim"] is None else D)


def sizing(asked: SizeQuery, unknown: Wanted, *, model: str = "linear_mamba", max_points: int = 256) -> dict[str, Any]:
    """The size that a question leaves out, or all minimal pairs of D and N with what they cost in an architecture.

    Pairs are thinned to `max_points`.
    """
    answer: dict[str, Any] | None = None
    points: list[FrontierPoint] = []
    if unknown == "frontier":
        points = frontier(asked, model=model, max_points=max_points)
        answer, reason = _smallest_state(points, asked)
    else:
        found = solve(asked, unknown)
        reason = found.reason
        if found.value is not None:
            D, N = asked.known("embed_dim"), asked.known("state_dim")
            answer = {"embed_dim": D, "state_dim": N, unknown: found.value}
            answer |= {"probability": found.probability, "extrapolated": found.extrapolated}
            answer |= {} if found.real is None else {"real": found.real}
    shown = {"target": asked.target, "law": asked.law.name, "answer": answer, "reason": reason}
    return shown | {"frontier": [asdict(point) for point in points]}


def size_sentences(found: Mapping[str, Any], unknown: Wanted) -> list[str]:
    """What was found, the headline first, and where it comes from."""
    answer, reason, by = found["answer"], found["reason"], f"by {found['law']}"
    if answer is None:
        return [f"no answer for p >= {found['target']:g} {by}: {reason}"]
    if unknown == "frontier":
        best = f"embed_dim={answer['embed_dim']}, state_dim={answer['state_dim']}"
        return [f"{len(found['frontier'])} minimal pairs reach p >= {found['target']:g} {by}; {reason}: {best}"]
    real = f", {answer['real']:.6g} before rounding" if "real" in answer else ""
    headline = f"{unknown} = {answer[unknown]}   p_recall {answer['probability']:.6f} {by}{real}"
    return [headline, reason, *filter(None, [answer["extrapolated"]])]


def _smallest_state(points: list[FrontierPoint], asked: SizeQuery) -> tuple[dict[str, Any] | None, str]:
    """The minimal pair with the smallest state, and what is said of it."""
    if points:
        best = min(points, key=lambda point: (point.extrapolated != "", point.state_entries, point.embed_dim))
        starred = any(point.extrapolated for point in points)
        which = "smallest state" + (" (all are extrapolated)" if best.extrapolated else " without *" if starred else "")
        return asdict(best), which
    p = float(asked.evaluate(embed_dim=LARGEST_EMBED, state_dim=LARGEST_EMBED))
    return None, f"unreachable: even embed_dim=state_dim={LARGEST_EMBED} gives p={p:.6f}: the task sets a ceiling."

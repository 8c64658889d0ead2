"""Measure any model on any task: train it by one recipe, count its state, and say what its recall is worth."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from recallscope.architectures.model import RecallModel, build_model, seeded_global_rng
from recallscope.architectures.user_module_model import UserModuleError, as_recall_model, module_in_memory
from recallscope.health import RARE, examine, noise
from recallscope.measuring.capacity import Capacity, CapacityQuery, find_capacity
from recallscope.measuring.learning import FACTORS, SEARCHED, Learning, Verdict, learn
from recallscope.measuring.measurement import (
    TRAINED_NOW,
    Accuracy,
    Information,
    LinearEqual,
    Measurement,
    Neighbour,
    committed_stores,
    neighbours,
    rival,
    rivals_and_stores,
    sizes_of,
)
from recallscope.measuring.state import StateSize, state_size
from recallscope.measuring.training_runs import EASIER, RATES, RECIPE, Trainer, direct_trainer, store_trainer
from recallscope.records import RunRecord, binding
from recallscope.runs.store import RunStore
from recallscope.runs.views import clock
from recallscope.specs import ModelSpec, RunSpec, TaskSpec, TrainSpec, canonical_json
from recallscope.tasks.batch import Score
from recallscope.tasks.drawing import sample_batch
from recallscope.train.evaluate import evaluate
from recallscope.train.loop import stream

STATE_SEED = 0
TIMED_STEPS = 4  # of a rehearsal that estimates how long training takes


def measure(
    model: ModelSpec | nn.Module | Callable[..., nn.Module],
    task: TaskSpec,
    *,
    train: TrainSpec | None = None,
    search_rates: bool | None = None,
    easier: bool | None = None,
    extend: bool | None = None,
    as_it_is: bool | None = None,
    seeds: int = 1,
    seed: int = 0,
    store: RunStore | Path | str = "runs/measured/store",
    compare_with: Iterable[Path | str] | None = None,
    num_sequences: int = 2000,
    device: torch.device | str = "cpu",
    trainer: Trainer | None = None,
    tell: Callable[[str], None] | None = None,
) -> Measurement:
    """Train a model and measure what comes out, or measure a model as it is.

    `model` is a spec, or any torch.nn.Module in memory whose `forward(tokens)` returns logits, or a class or function
    that makes one from `vocab_size`. A module is copied and trained from the weights that it has; with `as_it_is`, the
    default for models of ours, it is evaluated as it is, on `device`, over `num_sequences` test sequences.

    Without `train` the recipe is `RECIPE`. Its learning rate is searched first, by short runs on a separate seed, and
    a model that has not left chance begins with fewer facts, and runs that have not, or gain from more steps, are
    extended (`learning`); `search_rates`, `easier` and `extend` override that. Runs of a spec are kept in `store`
    and used again; a module in memory is trained in this process, and its runs are not kept. `compare_with` names
    stores with runs to compare with (default: the records of this repository), and architectures that are trained by
    the same recipe, of the same width and about the same state (`rival`). `tell` is called with a line now and then.
    """
    if not 1 <= seeds <= 1000:
        raise ValueError(f"seeds={seeds}: between 1 and 1000 training runs are averaged.")
    if not isinstance(model, ModelSpec | nn.Module) and not callable(model):
        raise ValueError(f"model is a {type(model).__name__}: a spec, a torch.nn.Module, or a function that makes one.")
    rivals, stores = rivals_and_stores(committed_stores() if compare_with is None else compare_with)
    others = neighbours(task, stores)
    if isinstance(model, nn.Module) and (isinstance(model, RecallModel) if as_it_is is None else as_it_is):
        if rivals:
            raise ValueError(f"compare_with={rivals[0]}: rivals are trained, and this model is measured as it is.")
        return _as_it_is(as_recall_model(model, task), task, num_sequences, seed, device, others)
    spec = model if isinstance(model, ModelSpec) else module_in_memory(model)
    in_memory = spec is not model
    subject = build_model(spec, task.vocab_size, torch.Generator().manual_seed(STATE_SEED))  # or say why not
    run = RunSpec(task=task, model=spec, train=train or TrainSpec.model_validate(RECIPE), seed=seed)
    too_short = _rehearse(subject, run)
    how: dict[str, bool] = {
        "search": search_rates if search_rates is not None else train is None,
        "easier": (easier if easier is not None else train is None) and not too_short,
        "extend": extend if extend is not None else train is None,
    }
    do = trainer or (direct_trainer(tell) if in_memory else store_trainer(store, weights=True))
    if tell:
        tell(estimate(subject, run, seeds=seeds, **how))
    learning = learn(run, do, seeds=seeds, **how)
    state = state_size(subject, torch.Generator().manual_seed(STATE_SEED))
    for name in rivals:
        against = run.model_copy(update={"model": rival(name, _width(subject), state.entries)})
        other = build_model(against.model, task.vocab_size, torch.Generator().manual_seed(STATE_SEED))
        if tell:
            tell(f"rival {name} {sizes_of(against.model)}: {estimate(other, against, seeds=seeds, **how)}")
        others.append(_rival(other, learn(against, do, seeds=seeds, **how), how["extend"]))
    if state.entries is not None:
        for training in (one for stage in learning.stages for one in stage.trainings):
            training.add_state(state.entries)
    verdict = learning.verdict(extended=how["extend"])
    if verdict.word == "did not learn":
        again = "rs.measure(module, task, train=rs.TrainSpec(...)) with more steps" if in_memory else None
        verdict = replace(
            verdict,
            checked=(*likely_causes(subject, task, learning), *too_short),
            next_command=again or next_command(learning.last.run),
        )
    scores = []
    for training in learning.best.trainings:
        trained = training.weights()
        scores.append(evaluate(trained, task, run.train.eval_size, stream(training.record.spec, "test")))
    return _measurement(
        subject, task, scores, verdict, others, state, sequences=run.train.eval_size, recipe=_recipe(learning),
        records=learning.best.records, everything=[record for stage in learning.stages for record in stage.records],
    )  # fmt: skip


def capacity(
    model: ModelSpec | nn.Module | Callable[..., nn.Module],
    task: TaskSpec,
    *,
    target: float = 0.9,
    solve_for: str = "num_facts",
    train: TrainSpec | None = None,
    max_runs: int = 6,
    store: RunStore | Path | str = "runs/capacity",
    trainer: Trainer | None = None,
    tell: Callable[[str], None] | None = None,
    **arguments: Any,
) -> Capacity:
    """The most facts that a model recalls at a target accuracy, or the smallest value of an argument that does.

    `task` gives all but what is looked for, whose value in it is not used. `arguments` go to the class or function that
    makes the module. See `measure` for what `model` may be, and `find_capacity` for how the answer is found.
    """
    spec = model if isinstance(model, ModelSpec) else module_in_memory(model, **arguments)
    in_memory = spec is not model
    given = spec.model_dump(mode="json") if in_memory else spec.leaving_out()
    fields = {
        "task": {name: value for name, value in task.leaving_out().items() if name not in (solve_for, "length")},
        "model": {name: value for name, value in given.items() if name != solve_for} | {"kind": spec.kind},
        "train": (train or TrainSpec.model_validate(RECIPE)).model_dump(),
    }
    do = trainer or (direct_trainer(tell) if in_memory else store_trainer(store))
    question = CapacityQuery(fields, solve_for, target)
    return find_capacity(question, do, max_runs=max_runs, search_rates=train is None and question.law is None)


def _rehearse(subject: RecallModel, run: RunSpec) -> list[str]:
    """Forwards and backwards on the task; why it cannot be trained with fewer facts first, if its module says so."""
    subject.check_batch(sample_batch(run.task, 2, STATE_SEED))
    shortest, facts = run.task.levels()[0], run.train.training_facts
    try:
        subject(sample_batch(shortest, 2, STATE_SEED).tokens)
    except UserModuleError as error:
        why = str(error).rstrip(".")
        if facts != "target":
            lengths = f"begins with {shortest.sequence_length} tokens; with --training-facts target every sequence has"
            raise UserModuleError(
                f"{why}. Training by --training-facts {facts} {lengths} {run.task.sequence_length}."
            ) from error
        return [f"fewer facts first: not tried, as {why}"]
    return []


def _as_it_is(
    subject: RecallModel,
    task: TaskSpec,
    num_sequences: int,
    seed: int,
    device: torch.device | str,
    others: list[Neighbour],
) -> Measurement:
    """Evaluated, not trained."""
    if not 1 <= num_sequences <= 10**8:
        raise ValueError(f"num_sequences={num_sequences} is outside 1..10^8.")
    if check := getattr(subject, "check_causality", None):
        check(sample_batch(task, 2, STATE_SEED).tokens)
    score = evaluate(subject.to(device), task, num_sequences, torch.Generator(device).manual_seed(seed))
    verdict = Verdict("as it is", "measured as it is: nothing was trained")
    if score.warning:
        verdict = Verdict(
            "did not learn", f"these weights do not recall on this task, and no size is derived. {score.warning}"
        )
    state = state_size(subject.to("cpu"), torch.Generator().manual_seed(STATE_SEED))
    return _measurement(
        subject, task, [score], verdict, others, state, sequences=num_sequences,
        recipe="measured as it is, without training",
    )  # fmt: skip


def _measurement(
    subject: RecallModel,
    task: TaskSpec,
    scores: Sequence[Score],
    verdict: Verdict,
    others: list[Neighbour],
    state: StateSize,
    *,
    sequences: int,
    recipe: str,
    records: Sequence[RunRecord] = (),
    everything: Sequence[RunRecord] = (),
) -> Measurement:
    """Put together; numbers are derived from the accuracy only if it is one of a model that learned."""
    spec = subject.spec
    errors = [score.standard_error for score in scores]
    accuracy = Accuracy.of([score.accuracy for score in scores], errors, sequences, scores[0].queries)
    bound = [binding(score.accuracy, score.in_context, getattr(task, "num_facts", None)) for score in scores]
    sure = [value for value in bound if value is not None]
    return Measurement(
        name=spec.kind,
        model=spec.model_dump(mode="json"),
        task=task.model_dump(mode="json"),
        accuracy=accuracy,
        binding=sum(sure) / len(sure) if sure else None,
        verdict=verdict,
        parameters=sum(weight.numel() for weight in subject.parameters()),
        state_entries=state.entries,
        stored_entries=state.stored,
        entries_per_token=state.per_token,
        state_bytes=state.bytes,
        state_how=state.how,
        recipe=recipe,
        information=Information.of(accuracy.mean, task, state.entries) if verdict.learned else None,
        linear=LinearEqual.of(accuracy, task, spec) if verdict.learned else None,
        neighbours=others,
        runs=tuple(record.run for record in records),
        seconds=sum(record.seconds for record in everything),
        warnings=_warnings(subject, records if verdict.word != "did not learn" else ()),
    )


def _warnings(subject: RecallModel, records: Sequence[RunRecord]) -> tuple[str, ...]:
    """About runs whose accuracy should not be taken at face value, and about parameters that are not trained."""
    found = [examine(record.model_dump(mode="json")).sentence for record in records]
    names = getattr(subject, "without_gradient", ())
    if names:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        found.append(f"no gradient reaches {', '.join(names[:5])}{more}: these parameters stay as they are")
    if why := getattr(subject, "not_judged", ""):
        found.append(f"whether it looks ahead could not be checked: in evaluation {why}")
    return tuple(filter(None, found))


def _recipe(learning: Learning) -> str:
    """How it was trained, in one line."""
    train = learning.best.run.train
    facts = {"curriculum": ", with 1, 2, 4, ... facts first", "mixture": ", with mixed numbers of facts"}
    rate = learning.searches[-1].sentence() if learning.searches else f"learning rate {train.learning_rate:g}"
    how = f"at most {train.total_steps:,} steps of AdamW, {train.batch_size * train.accumulate} sequences each"
    return f"{how}{facts.get(train.training_facts, '')}; {rate}"


def _width(subject: RecallModel) -> int:
    """Of the embedding that reads the tokens, or of the first linear map."""
    parts = [part for part in subject.modules() if isinstance(part, nn.Embedding)]
    spec = subject.spec.size_of("embed_dim")
    return spec if spec > 1 or not parts else parts[0].embedding_dim


def _rival(subject: RecallModel, learning: Learning, extend: bool) -> Neighbour:
    """What was learned by another architecture, trained by the same recipe."""
    run, records, spec = learning.best.run, learning.best.records, subject.spec
    entries = spec.effective_entries or state_size(subject, torch.Generator().manual_seed(STATE_SEED)).entries
    errors = [noise(record.test_accuracy, record.test_queries) / RARE for record in records]
    found = Accuracy.of([record.test_accuracy for record in records], errors, run.train.eval_size, 0)
    learned = learning.verdict(extended=extend).learned
    return Neighbour(spec.kind, sizes_of(spec), found.mean, len(records), entries, TRAINED_NOW, found.interval, learned)


def estimate(subject: RecallModel, run: RunSpec, *, seeds: int, search: bool, easier: bool, extend: bool) -> str:
    """How long the training takes on one core, by a few steps of the model: the usual case, and the longest."""
    step, train = _step_seconds(subject, run), run.train
    trials = len(RATES) * search / 2
    usual = step * train.total_steps * (trials + seeds)
    searched = 1 + sum(SEARCHED) * len(EASIER) if easier else sum(SEARCHED)
    longest = step * train.total_steps * (trials * searched + seeds * sum(FACTORS)) if extend else usual
    more = f", {clock(longest)} if it has to be extended" if extend else ""
    return f"estimated time: {clock(usual)} of one core ({1000 * step:.1f} ms a step){more}"


def _step_seconds(subject: RecallModel, run: RunSpec) -> float:
    """CPU time of one step: the shortest of a few."""
    train = run.train
    batch = sample_batch(run.task, train.batch_size, STATE_SEED)
    subject.train()
    times = [time.process_time()]
    with torch.random.fork_rng(devices=[]):
        for _ in range(TIMED_STEPS):
            subject.add_gradients(batch, train.label_smoothing)
            times.append(time.process_time())
    subject.zero_grad(set_to_none=True)
    return train.accumulate * min(later - before for before, later in pairwise(times))


# Why a model may not have learned: causes that can be looked at from outside, each with what was found

ORDER_BLIND = 0.05  # what swapping two tokens may change, over what replacing one does, for a model without positions
SEED = 0
KEEP_TRYING = 4  # times the steps of the longest run, in the command that is suggested


def likely_causes(model: RecallModel, task: TaskSpec, learning: Learning) -> tuple[str, ...]:
    """Sentences about initial scale, learning rates, curriculum, positions and dropout, of a model as it begins."""
    return (
        *_initial_scale(model),
        _rates(learning),
        *_curriculum(learning),
        *_window(model, task),
        _positions(model, task),
        *_dropout(model, task),
    )


def _initial_scale(model: RecallModel) -> list[str]:
    """Of every embedding of the tokens."""
    found = []
    for name, part in model.named_modules():
        if isinstance(part, nn.Embedding) and part.num_embeddings >= model.vocab_size:
            std, usual = float(part.weight.detach().std()), part.embedding_dim**-0.5
            small = f"small: width^-1/2 = {usual:.3f} or 1 learns sooner" if std < usual / 2 else "not small"
            found.append(f"initial scale: standard deviation {std:.3f} of {name}, width {part.embedding_dim}, {small}")
    return found or ["initial scale: no torch.nn.Embedding reads the tokens, so it was not looked at"]


def _rates(learning: Learning) -> str:
    """Those that were tried, and how far each got."""
    if not learning.searches:
        return f"learning rate: only {learning.last.run.train.learning_rate:g} was tried, as it was given"
    rates = ", ".join(f"{rate:g}" for rate in learning.searches[-1].trials)
    steps = " and ".join(dict.fromkeys(f"{search.steps:,}" for search in learning.searches))
    left = [rate for rate, trial in learning.searches[-1].trials.items() if trial.begun]
    what = f"only {', '.join(map('{:g}'.format, left))} left chance" if left else "all stayed at chance"
    return f"learning rates: {rates} for {steps} steps; {what}"


def _curriculum(learning: Learning) -> list[str]:
    """Whether levels were passed by accuracy or by their deadline."""
    records = [record for record in learning.last.records if record.levels_ended]
    if not records:
        return []
    ended, levels = records[0].levels_ended or [], [2**power for power in range(len(records[0].levels_ended or []))]
    text = ", ".join(f"{level} at step {step:,}" for level, step in zip(levels, ended, strict=True))
    return [f"curriculum: levels of so many facts were left: {text}, of {learning.last.steps:,}"]


def _window(model: RecallModel, task: TaskSpec) -> list[str]:
    """Whether a single layer sees a key and its value at once."""
    m, width = getattr(task, "key_tokens", 1), getattr(model.spec, "conv_width", None)
    if width is None or width > m or getattr(model.spec, "num_layers", 1) > 1:
        return []
    return [f"window: conv_width={width}, but a key and its value are {m + 1} tokens. Use conv_width={m + 1}"]


@torch.no_grad()
def _positions(model: RecallModel, task: TaskSpec) -> str:
    """Does the order of earlier tokens matter? Two of them are swapped, and one of them replaced for comparison."""
    model.eval()
    tokens = sample_batch(task, 8, SEED).tokens
    first, second = 0, min(4, tokens.shape[1] - 2)
    swapped, replaced = tokens.clone(), tokens.clone()
    swapped[:, [first, second]] = tokens[:, [second, first]]
    replaced[:, first] = (tokens[:, first] + 1) % model.vocab_size
    there = model(tokens)[:, -1]
    moved, changed = (float((model(other)[:, -1] - there).norm()) for other in (swapped, replaced))
    ratio = moved / changed if changed > 0 else 0.0
    if ratio < ORDER_BLIND:
        return f"positions: none. Swapping two earlier tokens moves the logits {ratio:.1e} as far as another token does"
    return "positions: the order of earlier tokens changes the logits"


def _dropout(model: RecallModel, task: TaskSpec) -> list[str]:
    """Do two passes of one batch in training mode differ?"""
    model.train()
    tokens, outputs = sample_batch(task, 4, SEED).tokens, list[Tensor]()
    for seed in (0, 1):
        with torch.no_grad(), seeded_global_rng(seed):
            outputs.append(model(tokens))
    model.eval()
    if torch.equal(*outputs):
        return []
    return ["dropout: two passes in training mode differ. Training sequences are all new, so try it without"]


def next_command(run: RunSpec) -> str:
    """The same measurement with four times the steps, to paste into a shell."""
    words = ["recallscope measure", run.model.kind]
    model = {name: value for name, value in run.model.leaving_out().items() if name not in ("kind", "digest")}
    words += [f"--model-args '{canonical_json(model)}'"] if model else []
    for name, value in run.task.leaving_out().items():
        default = type(run.task).model_fields[name].get_default()
        if name == "kind":
            words += [f"--task {value}"] if value != "mqar" else []
        elif value != default:
            words.append(f"--{name.replace('_', '-')} {value}")
    for name in ("warmup_steps", "flat_steps", "decay_steps"):
        words.append(f"--{name.replace('_', '-')} {KEEP_TRYING * getattr(run.train, name)}")
    return " ".join(words)

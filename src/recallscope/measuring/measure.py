"""Measure any model on any task: train it by one recipe, count its state, and say what its recall is worth."""

from collections.abc import Iterable
from pathlib import Path

import torch

from recallscope.architectures.model import RecallModel, build_model
from recallscope.health import examine
from recallscope.measuring.beside import committed_stores, neighbours
from recallscope.measuring.measurement import Accuracy, Information, LinearEqual, Measurement
from recallscope.measuring.state import state_size
from recallscope.measuring.trainings import RECIPE, RateSearch, Trainer, search_rate, store_trainer, with_train
from recallscope.records import RunRecord
from recallscope.runs.store import WEIGHTS, RunStore
from recallscope.specs import ModelSpec, RunSpec, TaskSpec, TrainSpec
from recallscope.train.evaluate import evaluate
from recallscope.train.loop import stream
from recallscope.train.weights import read_weights

STATE_SEED = 0


def measure(
    model: ModelSpec | RecallModel,
    task: TaskSpec,
    *,
    train: TrainSpec | None = None,
    search_rates: bool | None = None,
    seeds: int = 1,
    seed: int = 0,
    store: RunStore | Path | str = "runs/measured/store",
    compare_with: Iterable[Path | str] | None = None,
    num_sequences: int = 2000,
    device: torch.device | str = "cpu",
    trainer: Trainer | None = None,
) -> Measurement:
    """Train a spec and measure what comes out, or measure a model as it is.

    Without `train` the recipe is `RECIPE`, and its learning rate is chosen first, by short training runs on a separate
    seed; `search_rates` overrides that. Runs are kept in `store` and used again. `compare_with` names stores with runs
    to compare with (default: the records of this repository). `num_sequences` are the test sequences of a model that is
    measured as it is, on `device`.
    """
    if not 1 <= seeds <= 1000:
        raise ValueError(f"seeds={seeds}: between 1 and 1000 trainings are averaged.")
    others = neighbours(task, committed_stores() if compare_with is None else compare_with)
    if isinstance(model, RecallModel):
        if not 1 <= num_sequences <= 10**8:
            raise ValueError(f"num_sequences={num_sequences} is outside 1..10^8.")
        scores = [evaluate(model.to(device), task, num_sequences, torch.Generator(device).manual_seed(seed))]
        records, recipe, sequences = list[RunRecord](), "measured as it is, without training", num_sequences
        subject = model.to("cpu")
    else:
        subject = build_model(model, task.vocab_size, torch.Generator().manual_seed(STATE_SEED))  # or say why not
        run = RunSpec(task=task, model=model, train=train or TrainSpec.model_validate(RECIPE), seed=seed)
        home = store if isinstance(store, RunStore) else RunStore(store, create=True)
        do = trainer or store_trainer(home, weights=True)
        search = None
        if search_rates if search_rates is not None else train is None:
            search, _ = search_rate(run, do)
            run = with_train(run, learning_rate=search.chosen)
        done = do([run.model_copy(update={"seed": seed + extra}) for extra in range(seeds)])
        records = [training.record for training in done]
        scores = []
        for record in records:
            trained, _ = read_weights(home.folder(record.run) / WEIGHTS)
            scores.append(evaluate(trained, task, run.train.eval_size, stream(record.spec, "test")))
        recipe, sequences = _recipe(run.train, search), run.train.eval_size
    spec = subject.spec
    accuracy = Accuracy.of(
        [score.accuracy for score in scores], [score.standard_error for score in scores], sequences, scores[0].queries
    )
    state = state_size(subject, torch.Generator().manual_seed(STATE_SEED))
    return Measurement(
        name=spec.kind,
        model=spec.model_dump(mode="json"),
        task=task.model_dump(mode="json"),
        accuracy=accuracy,
        parameters=sum(weight.numel() for weight in subject.parameters()),
        state_entries=state.entries,
        state_bytes=state.bytes,
        state_how=state.how,
        recipe=recipe,
        information=Information.of(accuracy.mean, task, state.entries),
        linear=LinearEqual.of(accuracy, task, spec),
        beside=others,
        runs=tuple(record.run for record in records),
        seconds=sum(record.seconds for record in records),
        warnings=tuple(filter(None, (examine(record.model_dump(mode="json")).sentence for record in records))),
    )


def _recipe(train: TrainSpec, search: RateSearch | None) -> str:
    """How it was trained, in one line."""
    rate = f"learning rate {train.learning_rate:g}" if search is None else search.sentence()
    return f"{train.total_steps} steps of AdamW, {train.batch_size * train.accumulate} sequences each, {rate}"

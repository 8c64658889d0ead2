"""RunSpec in, RunRecord and weights out: fresh batches, AdamW, clipping, evaluation, early stop, resume."""

import contextlib
import hashlib
import math
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from recallscope.architectures.model import TOKENS_AT_ONCE, RecallModel, build_model, seeded_global_rng
from recallscope.architectures.ram import require_memory, weight_bytes
from recallscope.health import examine
from recallscope.ops.compiled import backend_name
from recallscope.records import Evaluation, RunRecord, binding
from recallscope.specs import RunSpec, TaskSpec
from recallscope.tasks.batch import Score
from recallscope.tasks.drawing import sample_batch
from recallscope.train.checkpoint import CheckpointError, Progress, check_tensors, read_checkpoint, write_checkpoint
from recallscope.train.evaluate import evaluate
from recallscope.train.levels import Levels
from recallscope.train.optimizer import FlatWeights, learning_rate
from recallscope.train.progress import Tick, is_interactive, progress_bar

WEIGHT_COPIES = 6  # weights, gradients, two moments and a scratch vector of AdamW, and the best state so far
SMALLER = "Choose a smaller vocab_size, embed_dim or batch_size."
PROGRESS_EVERY = 0.1  # seconds between two calls of the progress function
TOP_K = (2, 5, 10)  # of the test set
Stream = Literal["weights", "batches", "validation", "test", "rehearsal"]


@dataclass(frozen=True)
class Trained:
    """A finished run: what is kept, and the best state it found."""

    record: RunRecord
    model: RecallModel


def train_run(
    run: RunSpec,
    *,
    device: torch.device | str = "cpu",
    checkpoint: Path | None = None,
    on_progress: Callable[[Tick], None] | None = None,
    progress: bool | None = None,
) -> Trained:
    """Train as the spec says, or resume from the checkpoint if there is one for this spec.

    `on_progress` is called a few times a second. Without it a bar is shown on a terminal and in a notebook; `progress`
    says yes or no to that.

    Equal spec, equal result, bit for bit on one thread of one machine; also when killed at any moment and resumed, as
    the checkpoint written at each evaluation holds weights, moments, best state and the stream of batches. A checkpoint
    that cannot be resumed is left as it is, and CheckpointError says why. A run whose weights are no longer finite
    stops at that step; its result is that of the best state before, and its record is flagged (`health`).

    Paper: App. K (`app:impl-details`), Tab. 9 (`tab:hyperparams`): the state with the best validation accuracy is kept
        and tested on a set of its own.
    """
    if on_progress is None and (is_interactive() if progress is None else progress):
        with progress_bar(run.train.total_steps) as show:
            return _train(run, device, checkpoint, show)
    return _train(run, device, checkpoint, on_progress)


def _train(
    run: RunSpec,
    device: torch.device | str,
    checkpoint: Path | None,
    on_progress: Callable[[Tick], None] | None,
) -> Trained:
    """The run itself."""
    train, task = run.train, run.task
    started = time.perf_counter()
    require_memory(memory_of_training(run), "training this", SMALLER, device)
    model = build_model(
        run.model, task.vocab_size, stream(run, "weights"), embedding_std=train.embedding_std, device=device
    )
    progress = read_checkpoint(checkpoint, run) if checkpoint else None
    model.check_batch(sample_batch(task, 2, stream(run, "rehearsal", device)))
    weights = FlatWeights(model, train)
    batches = stream(run, "batches", device)
    best = weights.snapshot()
    if progress is None:
        progress = Progress(run=run.content_hash(), identity=run.identity())
    else:
        assert checkpoint is not None
        check_tensors(checkpoint, progress, _state(weights, best, batches))
        weights.load_state(progress.tensors, progress.step)
        try:
            batches.set_state(progress.tensors["batches"])
        except RuntimeError as error:
            raise CheckpointError(f"{checkpoint} is damaged: its stream of batches is none ({error}).") from error
        best = [progress.tensors[f"best.{index}"].to(device) for index in range(len(best))]
        started -= progress.seconds

    levels = Levels(run, progress.levels)
    loss_sum, losses, last_tick = torch.zeros((), device=device), 0, started - PROGRESS_EVERY  # the first step tells
    finished = progress.step >= train.total_steps or progress.best_accuracy >= train.stop_accuracy
    while not finished:
        seed = noise_seed(progress.run, progress.step)
        drawn = [levels.batch(batches) for _ in range(train.accumulate)]
        levels.look(model, drawn[0], progress.step, seed)
        with seeded_global_rng(seed, device) if model.draws_noise else contextlib.nullcontext():
            for batch in drawn:
                loss_sum += model.add_gradients(batch, train.label_smoothing)
                losses += 1
        rate = learning_rate(train, progress.step, levels.target_from)
        sound = weights.step(rate, train.clip_norm, scale=1 / train.accumulate)
        progress.step += 1
        levels.after(progress.step)
        if not sound:  # it answers nothing rightly any more
            progress.history.append(Evaluation(step=progress.step, loss=None, accuracy=0.0))
            break

        now = time.perf_counter()
        if on_progress and now - last_tick > PROGRESS_EVERY:
            last_tick = now
            accuracy = progress.history[-1].accuracy if progress.history else None
            on_progress(Tick(progress.step, train.total_steps, float(loss_sum) / losses, accuracy, now - started))
        finished = progress.step >= train.total_steps
        if finished or progress.step % train.eval_every == 0:
            score = evaluate(model, task, train.eval_size, stream(run, "validation", device))
            seen, loss = score.accuracy, float(loss_sum) / losses
            progress.history.append(
                Evaluation(step=progress.step, loss=loss if math.isfinite(loss) else None, **_answers(task, score))
            )
            loss_sum.zero_()
            losses = 0
            if seen > progress.best_accuracy:
                progress.best_accuracy, progress.best_step, best = seen, progress.step, weights.snapshot()
            finished = finished or seen >= train.stop_accuracy
            progress.seconds = time.perf_counter() - started
            if checkpoint:
                progress.tensors = _state(weights, best, batches)
                write_checkpoint(checkpoint, progress)

    weights.restore(best)
    tested = evaluate(model, task, train.eval_size, stream(run, "test", device), top_k=TOP_K)
    answers = _answers(task, tested)
    others = task.zoology_tests() if train.training_facts == "zoology" else ()
    by_facts = {
        str(getattr(other, "num_facts", "")): evaluate(
            model, other, train.eval_size, stream(run, "test", device)
        ).accuracy
        for other in others
    }
    record = RunRecord(
        run=progress.run,
        identity=progress.identity,
        spec=run,
        test_accuracy=tested.accuracy,
        in_context=answers["in_context"],
        binding=answers["binding"],
        top_k={str(k): share for k, share in (tested.top_k or {}).items()},
        val_accuracy=max(progress.best_accuracy, 0.0),
        test_queries=tested.queries,
        best_step=progress.best_step,
        steps=progress.step,
        seconds=time.perf_counter() - started,
        parameters=sum(weight.numel() for weight in model.parameters()),
        state_entries=run.model.state_entries_after(task.sequence_length),
        effective_entries=run.model.effective_entries,
        history=progress.history,
        by_facts=by_facts or None,
        levels_ended=progress.levels.ended if train.training_facts == "curriculum" else None,
        environment={
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": str(device),
            "threads": str(torch.get_num_threads()),
            "kernels": backend_name(device),
        },
    )
    return Trained(record.model_copy(update={"flag": examine(record.model_dump(mode="json")).kind}), model)


def _answers(task: TaskSpec, score: Score) -> dict[str, Any]:
    """What a record keeps of a score."""
    bound = binding(score.accuracy, score.in_context, getattr(task, "num_facts", None))
    return {"accuracy": score.accuracy, "in_context": score.in_context, "binding": bound}


def _state(weights: FlatWeights, best: list[torch.Tensor], batches: torch.Generator) -> dict[str, torch.Tensor]:
    """Everything of a run that a checkpoint keeps as tensors."""
    kept = {f"best.{index}": vector for index, vector in enumerate(best)}
    return weights.state() | kept | {"batches": batches.get_state()}


def memory_of_training(run: RunSpec) -> int:
    """Bytes that a training needs at the least: all copies of the weights, a batch of tokens, and activations once."""
    task, train = run.task, run.train
    tokens = train.batch_size * task.sequence_length
    at_once = min(tokens, max(TOKENS_AT_ONCE, task.sequence_length)) * run.model.size_of("embed_dim")
    return WEIGHT_COPIES * weight_bytes(run.model, task.vocab_size) + 8 * tokens + 4 * at_once


def stream(run: RunSpec, purpose: Stream, device: torch.device | str = "cpu") -> torch.Generator:
    """A fresh generator for one purpose of one run: equal run, equal purpose, equal numbers."""
    return torch.Generator(device).manual_seed(_seed(f"{run.content_hash()}/{purpose}"))


def noise_seed(run: str, step: int) -> int:
    """Seed of what a model itself draws in one step of a run, such as dropout."""
    return _seed(f"{run}/noise/{step}")


def _seed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1

"""RunSpec in, RunRecord and weights out: fresh batches, AdamW, clipping, evaluation, early stop, checkpoint and
resume."""

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from recallscope.models import LinearMamba, RecallModel, build_model
from recallscope.ops.query_loss import query_loss
from recallscope.records import Evaluation, RunRecord
from recallscope.specs import RunSpec
from recallscope.tasks import Batch, draw_batch
from recallscope.train.checkpoint import Progress, read_checkpoint, write_checkpoint
from recallscope.train.evaluate import evaluate
from recallscope.train.flat import FlatWeights
from recallscope.train.linear_step import can_step, linear_step
from recallscope.train.schedule import learning_rate
from recallscope.train.streams import stream

PROGRESS_EVERY = 0.1  # seconds between two calls of the progress function


@dataclass(frozen=True)
class Tick:
    """What a progress bar wants to know."""

    step: int
    total_steps: int
    loss: float
    accuracy: float | None  # of the latest evaluation
    seconds: float


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
) -> Trained:
    """Train as the spec says, or go on from the checkpoint if there is one for this spec.

    Equal spec, equal result, bit for bit on one thread of one machine; also when killed at any moment and resumed, as
    the checkpoint written at each evaluation holds weights, moments, best state and the stream of batches.

    Paper: App. K (`app:impl-details`), Tab. 9 (`tab:hyperparams`): the state with the best validation accuracy is kept
        and tested on a set of its own.
    """
    train, task = run.train, run.task
    started = time.perf_counter()
    model = build_model(
        run.model, task.vocab_size, stream(run, "weights"), embedding_std=train.embedding_std, device=device
    )
    weights = FlatWeights(model)
    optimizer = weights.optimizer(train)
    batches = stream(run, "batches", device)
    progress = read_checkpoint(checkpoint, run.content_hash()) if checkpoint else None
    if progress is None:
        progress = Progress(run=run.content_hash())
        best = weights.snapshot()
    else:
        best = _load(progress, weights, optimizer, batches)
        started -= progress.seconds

    loss_sum, losses, last_tick = torch.zeros((), device=device), 0, started
    finished = progress.step >= train.total_steps or progress.best_accuracy >= train.stop_accuracy
    while not finished:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(train, progress.step)
        for _ in range(train.accumulate):
            loss_sum += add_gradients(model, draw_batch(task, train.batch_size, batches), train.label_smoothing)
            losses += 1
        if train.accumulate > 1:
            for grad in weights.grads():
                grad /= train.accumulate
        weights.clip(train.clip_norm)
        optimizer.step()
        weights.zero_grads()
        progress.step += 1

        now = time.perf_counter()
        if on_progress and now - last_tick > PROGRESS_EVERY:
            last_tick = now
            accuracy = progress.history[-1].accuracy if progress.history else None
            on_progress(Tick(progress.step, train.total_steps, float(loss_sum) / losses, accuracy, now - started))
        finished = progress.step >= train.total_steps
        if finished or progress.step % train.eval_every == 0:
            seen = evaluate(model, task, train.eval_size, stream(run, "validation", device)).accuracy
            progress.history.append(Evaluation(step=progress.step, loss=float(loss_sum) / losses, accuracy=seen))
            loss_sum.zero_()
            losses = 0
            if seen > progress.best_accuracy:
                progress.best_accuracy, progress.best_step, best = seen, progress.step, weights.snapshot()
            finished = finished or seen >= train.stop_accuracy
            progress.seconds = time.perf_counter() - started
            if checkpoint:
                progress.tensors = _tensors(weights, optimizer, batches, best)
                write_checkpoint(checkpoint, progress)

    weights.restore(best)
    tested = evaluate(model, task, train.eval_size, stream(run, "test", device))
    record = RunRecord(
        run=progress.run,
        spec=run,
        test_accuracy=tested.accuracy,
        val_accuracy=max(progress.best_accuracy, 0.0),
        test_queries=tested.queries,
        best_step=progress.best_step,
        steps=progress.step,
        seconds=time.perf_counter() - started,
        history=progress.history,
        environment={
            "torch": torch.__version__,
            "python": platform.python_version(),
            "device": str(device),
            "threads": str(torch.get_num_threads()),
        },
    )
    return Trained(record, model)


def add_gradients(model: RecallModel, batch: Batch, label_smoothing: float) -> Tensor:
    """The loss of a batch; its gradients are added to the parameters'. One linear layer has a way of its own."""
    if can_step(model):
        assert isinstance(model, LinearMamba)
        return linear_step(model, batch, label_smoothing)
    y = model.hidden_at(batch.tokens, batch.query_positions)
    loss = query_loss(y.flatten(0, 1), model.E, batch.answers.flatten(), label_smoothing)
    loss.backward()
    return loss.detach()


def _tensors(
    weights: FlatWeights, optimizer: torch.optim.AdamW, batches: torch.Generator, best: list[Tensor]
) -> dict[str, Tensor]:
    tensors = {"batches": batches.get_state()}
    for index, vector in enumerate(weights.vectors):
        state = optimizer.state[vector]
        tensors |= {f"weights.{index}": vector.detach(), f"best.{index}": best[index]}
        tensors |= {f"{name}.{index}": state[name] for name in ("exp_avg", "exp_avg_sq", "step")}
    return tensors


def _load(
    progress: Progress, weights: FlatWeights, optimizer: torch.optim.AdamW, batches: torch.Generator
) -> list[Tensor]:
    """Put a checkpoint's tensors where they belong; returns the best state so far."""
    tensors = progress.tensors
    weights.restore([tensors[f"weights.{index}"] for index in range(len(weights.vectors))])
    for index, vector in enumerate(weights.vectors):
        on_device = {name: tensors[f"{name}.{index}"].to(vector.device) for name in ("exp_avg", "exp_avg_sq")}
        optimizer.state[vector] = on_device | {"step": tensors[f"step.{index}"].to(vector.device)}
    batches.set_state(tensors["batches"])
    return [tensors[f"best.{index}"].to(vector.device) for index, vector in enumerate(weights.vectors)]

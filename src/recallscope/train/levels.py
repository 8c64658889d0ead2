"""What a training step trains on: the run's task, or the same task with fewer facts before it or in between.

A model that starts on many facts can stay for thousands of steps at naming any value of the context. A curriculum
starts with one fact and goes to the next level when the running training accuracy is high enough, at the latest when
the level's share of the steps is over; a mixture draws a level for every step. Tokens per step stay the same; in
zoology's mixture it is the sequences, and the easiest level is drawn five times as often as any other.
"""

import contextlib
from dataclasses import dataclass, field

import torch

from recallscope.architectures.model import RecallModel, seeded_global_rng
from recallscope.specs import RunSpec, TaskSpec
from recallscope.tasks.batch import Batch, answered
from recallscope.tasks.drawing import sample_batch

CHECK_EVERY = 5  # steps between two looks at the training accuracy: each costs a forward pass
MEMORY = 0.9  # of the running accuracy, per step
ZOOLOGY = 5  # times as often is the easiest level drawn in its mixture: 100,000 sequences beside 20,000 of each other


@dataclass
class LevelState:
    """What a checkpoint keeps of a curriculum."""

    ended: list[int] = field(default_factory=list)  # steps after which each level was left
    accuracy: float = 0.0  # running, at the present level


class Levels:
    """The levels of a run, and which of them a step trains on."""

    def __init__(self, run: RunSpec, state: LevelState) -> None:
        train, task = run.train, run.task
        self.train, self.state = train, state
        self.tasks: tuple[TaskSpec, ...] = (task,) if train.training_facts == "target" else task.levels()
        tokens = train.batch_size * task.sequence_length
        self.sizes = [max(1, tokens // each.sequence_length) for each in self.tasks]
        if train.training_facts == "zoology":
            easiest, *others = task.zoology_levels()
            self.tasks = (*ZOOLOGY * (easiest,), *others)
            self.sizes = [train.batch_size] * len(self.tasks)

    @property
    def climbs(self) -> bool:
        """Whether this is a curriculum that has not reached its target."""
        return self.train.training_facts == "curriculum" and len(self.state.ended) < len(self.tasks) - 1

    @property
    def target_from(self) -> int:
        """The step from which a curriculum trains on its target; at the latest, while it has not reached it."""
        if self.train.training_facts != "curriculum" or len(self.tasks) == 1:
            return 0
        return self._latest(len(self.tasks) - 2) if self.climbs else self.state.ended[-1]

    def _latest(self, level: int) -> int:
        """The step after which a level is left whatever its accuracy: what a level does not use, the next may."""
        share = self.train.curriculum_share * (level + 1) / (len(self.tasks) - 1)
        return int(share * self.train.total_steps)

    def batch(self, generator: torch.Generator) -> Batch:
        """The next training batch."""
        level = len(self.state.ended) if self.train.training_facts == "curriculum" else len(self.tasks) - 1
        if self.train.training_facts in ("mixture", "zoology"):
            level = int(torch.randint(len(self.tasks), (), generator=generator, device=generator.device))
        return sample_batch(self.tasks[level], self.sizes[level], generator)

    def look(self, model: RecallModel, batch: Batch, step: int, seed: int) -> None:
        """Every few steps: how well is a batch answered that the model has not yet trained on?"""
        if not self.climbs or step % CHECK_EVERY:
            return
        training = model.training
        model.eval()
        quiet = seeded_global_rng(seed, batch.tokens.device) if model.draws_noise else contextlib.nullcontext()
        with torch.no_grad(), quiet:
            right = answered(model.best_tokens(batch.tokens, batch.query_positions), batch)
        model.train(training)
        kept = MEMORY**CHECK_EVERY
        self.state.accuracy = kept * self.state.accuracy + (1 - kept) * float(right.double().mean())

    def after(self, step: int) -> None:
        """Go to the next level if it is time; `step` steps have been taken."""
        while self.climbs and (
            self.state.accuracy >= self.train.curriculum_accuracy or step >= self._latest(len(self.state.ended))
        ):
            self.state.ended.append(step)
            self.state.accuracy = 0.0

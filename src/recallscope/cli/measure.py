"""`recallscope measure`: any model on a task, its recall, its state, and its place among others."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from recallscope.atomic import write_atomically
from recallscope.cli.flags import (
    OptionalInt,
    OptionalPath,
    OptionalText,
    Quiet,
    RunFlags,
    SeveralStateFlags,
    typed_value,
    with_run_flags,
)
from recallscope.cli.output import console, count, number, print_json, show, table
from recallscope.train.saved import is_pretrained, is_weights, load_model, task_of, weights_file, what_is_measured

if TYPE_CHECKING:
    from recallscope.architectures.model import RecallModel
    from recallscope.measuring.measurement import Measurement, Neighbour
    from recallscope.measuring.stored_states import StoredRecall
    from recallscope.specs import TaskSpec

PROGRESS_EVERY = 10.0  # seconds between two lines about a run that is under way
STEPS = frozenset(("warmup_steps", "flat_steps", "decay_steps"))  # if one is given, runs are not extended
SHOWN = 9  # models beside the measured one, those nearest in state


@dataclass(kw_only=True)
class Measure(SeveralStateFlags, RunFlags):
    """Measure what a model recalls: accuracy, effective state size, and bits per state entry.

    recallscope measure examples/my_memory.py:Model --vocab-size 64 --num-facts 4

    MODEL is an architecture or your own torch.nn.Module. The output also has the linear Mamba it equals and its rank
    among stored runs on the same task. All models are trained by one recipe: the learning rate is the best of four in
    short runs on another seed, and a model that stays at chance at all of them is trained with fewer facts first, by a
    curriculum or a mixture. Runs that are still at chance, or gain from more steps, are extended to twice and four
    times the steps. A model that stays at chance "did not learn under this recipe", and no size is derived. Flags
    override any of this: every field of task, model and training is one, and so is every argument of your constructor:

    recallscope measure linear_mamba --vocab-size 32 --num-facts 2 --embed-dim 8 --state-dim 4 --flat-steps 9

    Weights are measured without training: those of recallscope train or design, on their own task or a variant of it
    (more facts, longer sequences, other filler, another --task); a Hugging Face folder of a Mamba or Mamba-2, with
    token numbers as keys and values; or, with --weights, those of your module.

    recallscope measure WEIGHTS --num-facts 4 --vocab-size 32 --num-sequences 20

    A bare mixer, (batch, L, D) -> (batch, L, D), is wrapped with an embedding and, in every layer, norm, short
    convolution (width 3, as in zoology; --short-conv) and residual: --mixer my_nets.py:MyMixer --width 64 --num-layers
    2.

    --state-format stores the state in few bits after every token, and also prints the exact and the predicted accuracy;
    several formats make a table:

    recallscope measure WEIGHTS --state-format int8 int4 fp8-e4m3 --num-sequences 20
    """

    model: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL", help_behavior_hint="")] = None
    """Architecture, your own module (my_nets.py:MyModel), or weights: a .safetensors file, the folder of train --out,
    or a Hugging Face folder. Must be the first argument."""
    mixer: OptionalText = None
    """Instead of MODEL: a bare mixer to be wrapped, my_nets.py:MyMixer."""
    weights: OptionalPath = None
    """Measure MODEL with these weights, a safetensors file of its state_dict."""
    seeds: int = 1
    """Training runs with different seeds; with several the interval is over seeds."""
    compare_with: Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="NAME ...", help_behavior_hint="")] = None
    """Rivals and stores to compare with. Architectures (linear_mamba delta_net attention) and your other modules are
    trained by the same recipe, with the same width and about the same state (default: stores of this repository)."""
    num_sequences: int = 2000
    """Test sequences for weights; after training, --eval-size applies."""
    device: str = "auto"
    """Device for measuring weights: auto, cpu, cuda ..."""
    workers: OptionalInt = None
    """Training runs in parallel (default: one per core); 0 runs them in this process, which a debugger can follow."""
    out: Path = Path("runs/measured")
    """Folder for the figure, the measurement as JSON, and the store of training runs, which are reused."""
    figure: OptionalPath = None
    """File for the figure instead, as PNG and SVG."""
    trust_code: bool = False
    """Import the code that the weights name; without this flag no file makes recallscope run code."""
    quiet: Quiet = False
    """Show no progress."""
    json: bool = False
    """Print one JSON object on stdout; progress goes to stderr."""

    def run(self) -> int:
        """Train or load, measure, draw, print."""
        if self.mixer is not None:
            self.model = f"mixer:{self.mixer}"
        if self.model is not None and self.weights is None and is_weights(self.model):
            self.weights, self.model = Path(self.model), None
        if self.model is None and self.weights is None and not self.starts:
            raise ValueError(
                "which model? Name it first: recallscope measure linear_mamba, my_nets.py:MyModel, or weights."
            )
        from recallscope.cli.training import pick_device, use_threads
        from recallscope.measuring.measure import measure
        from recallscope.measuring.training_runs import RECIPE, store_trainer
        from recallscope.runs.store import RunStore
        from recallscope.runs.views import PlainView

        use_threads(1)
        precisions = self.precisions()
        stored: list[StoredRecall] = []
        if precisions and self.weights is None:
            formats = " ".join(precision.format for precision in precisions)
            raise ValueError(
                f"--state-format {formats}: a state is rounded in weights that are there. Train first: recallscope "
                f"train --out DIR, then recallscope measure DIR --state-format {formats}."
            )
        if self.weights is not None:
            subject, task = self._as_it_is(self.weights)
            if precisions:
                from recallscope.architectures.stored_state import StoredState
                from recallscope.measuring.stored_states import measure_stored

                stored = measure_stored(subject, task, precisions, self.num_sequences, self.seed or 0)
                if len(precisions) == 1:
                    subject = StoredState(subject, precisions[0], seed=self.seed or 0)
            measured = measure(
                subject, task, seed=self.seed or 0, compare_with=self.compare_with, num_sequences=self.num_sequences,
                device=pick_device(self.device),
            )  # fmt: skip
        else:
            run = self.run_spec(RECIPE)
            task = run.task
            store = RunStore(self.out / "store", create=True)
            view = None if self.quiet else PlainView(sys.stderr, every=PROGRESS_EVERY)
            measured = measure(
                run.model, task, train=run.train, seed=run.seed, seeds=self.seeds, store=store,
                compare_with=self.compare_with,
                search_rates=not self.starts and "learning_rate" not in self.given("train"),
                easier=not self.starts and "training_facts" not in self.given("train"),
                extend=not self.starts and not STEPS & self.given("train").keys(),
                trainer=store_trainer(store, workers=self.workers, weights=True, view=view),
                tell=None if self.quiet else tell,
            )  # fmt: skip
        stem = self.out / self._name(measured)
        stem = stem.with_name("-".join([stem.name, *(one.precision_id[:8] for one in stored)]))
        facts = asdict(measured) | {"place": measured.place, "place_at_its_state": measured.place_per_entry}
        facts |= {"stored_state": asdict(stored[0])} if len(stored) == 1 else {}
        facts |= {"stored_states": [asdict(one) for one in stored]} if len(stored) > 1 else {}
        write_atomically(stem.with_name(f"{stem.name}.json"), json.dumps(facts, indent=1).encode() + b"\n")
        figure = self._draw(measured, task, self.figure.with_suffix("") if self.figure else stem)
        if self.json:
            print_json(facts | {"figure": figure})
        else:
            self._print(measured, figure)
            show(stored[0].sentences if len(stored) == 1 else [])
            if len(stored) > 1:
                cells = [
                    (one.label, *map(number, (one.stored, one.standard_error, one.exact, one.predicted)))
                    for one in stored
                ]
                columns = ("state stored as", "recall", "±", "exact", "predicted")
                console().print(table(columns, cells, left=columns[:1]))
            if self.weights is not None and is_pretrained(self.weights):
                print(what_is_measured(subject, task))
        return 0

    def _as_it_is(self, path: Path) -> tuple[RecallModel, TaskSpec]:
        """The model of a weights file and its task, with the flags of the task on top."""
        import torch

        from recallscope.architectures.model import build_model
        from recallscope.train.weights import load_tensors

        file = weights_file(path)
        if task_of(file) is None and self.model is not None and file.is_file():  # tensors of the user's own
            run = self.run_spec()
            model = build_model(run.model, run.task.vocab_size, torch.Generator().manual_seed(0))
            load_tensors(file, model)
            return model, run.task
        model, task = load_model(path, self.given("task"), self.task, trust_code=self.trust_code or self.model or False)
        if self.model not in (None, model.spec.kind):
            raise ValueError(f"{path} holds a {model.spec.kind}, not a {self.model}. Leave MODEL out.")
        return model, task

    def _name(self, measured: Measurement) -> str:
        run = measured.runs[0][:8] if measured.runs else "as-it-is"
        return re.sub(r"[^\w.-]+", "-", f"{measured.name.rpartition('/')[2]}-{run}")

    def _draw(self, measured: Measurement, task: TaskSpec, stem: Path) -> str | None:
        """Save the figure; None where there is no matplotlib."""
        if importlib.util.find_spec("matplotlib") is None:
            return None
        from recallscope.figures.style import PAGE, figure_style, new_figure, save_figure
        from recallscope.figures.variants import draw_measured
        from recallscope.measuring.measurement import reference_curves

        with figure_style():
            figure = new_figure(PAGE, max(3.0, 0.17 * (len(measured.drawn) + 6)))  # as high as its legend
            draw_measured(measured, figure.subplots(), reference_curves(measured, task))
        return str(save_figure(figure, stem)[0])

    def _print(self, measured: Measurement, figure: str | None) -> None:
        show([measured.headline], bold=1)
        show(f"{name:12}{text}" for name, text in measured.summary.items())
        show(f"checked     {sentence}" for sentence in measured.verdict.checked)
        if measured.verdict.next_command:
            show([f"next        {measured.verdict.next_command}"])
        show((f"warning     {sentence}" for sentence in measured.warnings), bold=len(measured.warnings))
        show([f"neighbours  {measured.rank}"])
        if measured.neighbours and measured.verdict.learned:
            rows = measured.nearest(SHOWN)
            cells = [
                (row.label, number(row.accuracy) if row.learned else "did not learn", _ends(row),
                 count(row.state_entries), str(row.seeds), row.store) for row in rows
            ]  # fmt: skip
            mine = [place for place, row in enumerate(rows) if row.store == "this"]
            columns = ("model", "recall", "95%", "effective state", "seeds", "store")
            console().print(table(columns, cells, left=("model", "store"), bold=mine))
        show([f"figure      {figure or 'none: pip install recallscope[figures]'}"])


def _ends(row: Neighbour) -> str:
    return f"{row.interval[0]:.3f} to {row.interval[1]:.3f}" if row.interval and row.learned else ""


def tell(line: str) -> None:
    """A line on stderr."""
    print(line, file=sys.stderr, flush=True)


def command_for(arguments: Sequence[str]) -> type:
    """The command with flags for the model that comes first, and for the task that is named or of the weights."""
    first = arguments[0] if arguments and not arguments[0].startswith("-") else ""
    weights = typed_value(arguments, "--weights") or (first if is_weights(first) else None)
    mixer = typed_value(arguments, "--mixer")
    first = f"mixer:{mixer}" if mixer else first
    named = ["--model", first] if first and first != weights else []
    kind = task_of(weights_file(Path(weights))) if weights and not typed_value(arguments, "--task") else None
    return with_run_flags(Measure, [*arguments, *named, *(["--task", kind] if kind else [])])

"""What is inside trained models: tables, attention, convolution, operators.

Paper: Sec. 3.2 (`subsec:mech-interp`), Fig. 3 (`fig:reversing-hidden`), Fig. 13-16 (`app-fig:reversing-hidden`,
`fig:reversing-attn`, `fig:reversing-conv`, `app-fig:reversing-operators`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recallscope.atomic import write_atomically
from recallscope.presets import Preset
from recallscope.records import RunRecord
from recallscope.runs.store import RunStore
from recallscope.studies.claims import Check, Finding, by_distance, own_check
from recallscope.studies.experiment import Misses, Part, Scale, experiment, part
from recallscope.studies.paper_runs import Caption, PaperRuns, no_runs, sheet, source_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MECHANISM = Preset(
    "the models whose states are decoded (Fig. 3, Fig. 13-16)",
    {"kind": "mqar", "vocab_size": 256, "num_facts": 16},
    {"kind": "linear_mamba", "embed_dim": 64, "state_dim": 32},
)
MODELS = "mechanism"
NUM_SEQUENCES = 500  # behind every score of a model that was inspected


@experiment(
    "mechanism",
    "inside three trained models: tables, attention, convolution, operators",
    claims=("fig-3", "fig-13", "fig-14", "fig-15", "fig-16"),
    presets={"mechanism": MECHANISM},
)
def mechanism(scale: Scale) -> Iterator[Part]:
    """The paper's three models at two scales; one small model at the quick scale."""
    if scale == "quick":
        yield part(
            MODELS, MECHANISM, task={"vocab_size": 64, "num_facts": 8}, model={"embed_dim": 32, "state_dim": 16},
            train={"batch_size": 32, "eval_size": 1000}, axes={"seed": [0]}, keep_weights=True, cut="one small model",
        )  # fmt: skip
    else:
        pairs = {"embed_dim": [64, 64, 48], "state_dim": [32, 24, 32]}
        yield part(MODELS, MECHANISM, axes={"seed": [0]}, zipped=pairs, keep_weights=True)


@dataclass(frozen=True)
class Inspected:
    """One model that was inspected: its record, arrays to draw, and scores."""

    record: RunRecord
    arrays: dict[str, NDArray[Any]]
    scores: dict[str, Any]

    @property
    def cell(self) -> tuple[int, int]:
        """(D, N)."""
        fields: dict[str, Any] = self.record.fields
        return fields["embed_dim"], fields["state_dim"]

    @property
    def context_length(self) -> int:
        """Tokens of the facts section."""
        fields: dict[str, Any] = self.record.fields
        return int(2 * fields["num_facts"] * fields["key_repeats"])


def inspected_models(runs: PaperRuns) -> list[Inspected]:
    """The models that have been inspected, in the order of the paper."""
    found = []
    for record in runs.records(MODELS):
        arrays, scores = inspection_paths(runs.store, record.run)
        if arrays.exists() and scores.exists():
            with np.load(arrays) as kept:  # noqa: TID251 (no allow_pickle)
                found.append(Inspected(record, dict(kept), json.loads(scores.read_text())))
    return found


def inspection_paths(store: RunStore, run: str) -> tuple[Path, Path]:
    """Where arrays and scores of a run are kept."""
    return store.root / "inside" / f"{run}.npz", store.root / "inside" / f"{run}.json"


@mechanism.after_runs
def inspect_all(runs: PaperRuns) -> None:
    """Inspect every trained model that has not been inspected."""
    for record in runs.records(MODELS):
        inspect_run(runs.store, record)


def inspect_run(store: RunStore, record: RunRecord, *, num_sequences: int = NUM_SEQUENCES) -> None:
    """Read a trained model's weights from the store; keep what its figures draw, and its scores.

    Paper: Sec. 3.2 (`subsec:mech-interp`).
    """
    arrays_path, scores_path = inspection_paths(store, record.run)
    if arrays_path.exists() and scores_path.exists():
        return
    import torch

    from recallscope.interp.attention import picture_arrays
    from recallscope.interp.inspection import inspect_model
    from recallscope.runs.store import WEIGHTS
    from recallscope.tasks.drawing import sample_batch
    from recallscope.train.weights import read_weights

    model, task = read_weights(store.folder(record.run) / WEIGHTS)
    found = inspect_model(model, task, torch.Generator().manual_seed(0), num_sequences=num_sequences)
    arrays = picture_arrays(model, sample_batch(task, 1, torch.Generator().manual_seed(0)), task)
    kept, named = io.BytesIO(), dict[str, Any](arrays)
    np.savez_compressed(kept, **named)
    write_atomically(arrays_path, kept.getvalue())
    write_atomically(scores_path, json.dumps(found.to_dict(), indent=1).encode() + b"\n")


# Findings: the check, and the scores that answer it with their names; the ideal of every score is 1
SCORES: tuple[tuple[Check, dict[str, Callable[[dict[str, Any]], Any]]], ...] = (
    (Check("fig-13", "Does the state decode to the table of facts, H'' about H?", "yes (by eye)", "fig-13"),
     {"facts decoded correctly": lambda s: s["decoded_hit_rate"]}),
    (Check("fig-3", "Do facts differ in H'' from all other entries?", "yes (by eye)", "fig-3"),
     {"area under the ROC curve": lambda s: s["auc"]}),
    (Check("fig-14", "Does attention go from a query to its fact?", "alpha' about alpha (by eye)", "fig-14"),
     {"queries whose largest weight is on their fact": lambda s: s["attention"]["hit_rate"]}),
    (Check("fig-15", "Does the convolution copy values and shift keys?", "main and second diagonal dominate", "fig-15"),
     {"values: tokens whose largest entry is the diagonal": lambda s: s["copy"]["hit_rate"],
      "keys: tokens whose largest entry is one off the diagonal": lambda s: s["shift"]["hit_rate"]}),
    (Check("fig-16", "Do G_vv and G_kq have their predicted blocks only?", "all other entries about 0", "fig-16"),
     {"share of energy in the block of G_vv": lambda s: s["g_vv_block_mass"],
      "in that of G_kq": lambda s: s["g_kq_block_mass"]}),
    (own_check("Can a fact be overwritten in the state alone?", "fig-3"),
     {"edits that change the answer as meant": lambda s: s["overwrite_success"]}),
)  # fmt: skip


@mechanism.findings
def scores_of_models(runs: PaperRuns) -> Iterator[Finding]:
    """One finding per figure, over all models that were inspected."""
    models = inspected_models(runs)
    for check, scores in SCORES:
        if not models:
            yield check.untested("no model has been inspected yet")
            continue
        values = {name: [float(read(model.scores)) for model in models] for name, read in scores.items()}
        cells = ", ".join(str(model.cell) for model in models)
        yield check.answer(
            "; ".join(f"{name} {', '.join(f'{value:.4f}' for value in found)}" for name, found in values.items()),
            by_distance("distance of the smallest score from 1", 1 - min(map(min, values.values())), 0.01, 0.1),
            f"{len(models)} trained models, (D, N) = {cells} in this order, {NUM_SEQUENCES} sequences each",
        )


@mechanism.law_notes
def why_laws_differ(runs: PaperRuns, misses: Misses) -> Iterator[str]:
    """What the selectivity probe found in the models that were inspected."""
    for model in inspected_models(runs):
        scores = model.scores
        key, value, share = scores["key_variance"], scores["value_variance"], scores["selectivity"]["value_share"]
        yield (
            f"Inside the trained model (D, N) = {model.cell}: key codes have "
            f"{key['measured'] / key['welch']:.2f} of a tight frame's variance, {key['measured'] / key['random']:.2f} "
            f"of random codes'; {share:.0%} of the values' energy is in the key dimensions, and their variance is "
            f"{value['measured']:.4f} ({value['random']:.4f} by the paper's 1/D, {value['welch']:.4f} for a tight "
            f"frame in all D, {value['sharing']:.4f} by trained-sharing): keys and values are not orthogonal."
        )


# Figures: a row for every model

CLAIM_OF = {"hash_table": "fig-13", "attention": "fig-14", "copy_and_shift": "fig-15", "operators": "fig-16"}


@mechanism.figure("fig-3", "hash tables of one trained model", panels="hash_table", height=2.9, most=1)
@mechanism.figure("fig-13", "hash tables of three trained models", panels="hash_table", height=2.9)
@mechanism.figure("fig-14", "attention of three trained models", panels="attention", height=3.3)
@mechanism.figure("fig-15", "copy and shift by the convolution", panels="copy_and_shift", height=3.3)
@mechanism.figure("fig-16", "invariant operators of three trained models", panels="operators", height=4.0)
def inside_figure(runs: PaperRuns, panels: str, height: float, most: int | None = None) -> Figure:
    """One kind of panels for every trained model, or the first ones; `height` is that of a row in inches."""
    from recallscope.figures.mechanism import SHEETS, inside_panels

    text = source_line(runs, mechanism.name, (MODELS,))
    found = inspected_models(runs)
    models = found[:most]
    if not models:
        raise no_runs(runs, mechanism.name, "trained models but no look inside any")
    width, _, note = SHEETS[panels]
    scores = next(read for check, read in SCORES if check.claim == CLAIM_OF[panels])
    values = {name: ", ".join(f"{float(read(model.scores)):.4f}" for model in models) for name, read in scores.items()}
    caption = Caption(
        "; ".join(f"{name}: {numbers}" for name, numbers in values.items()),
        note,
        f"{len(models)} of {len(found)} trained models; scores over {NUM_SEQUENCES} sequences each",
        text,
    )
    with sheet(width, height * len(models) + 0.4, caption) as figure:
        for model, row in zip(models, figure.subfigures(len(models), 1, squeeze=False)[:, 0], strict=True):
            inside_panels(model.arrays, model.context_length)[panels](row)
            row.suptitle(_name(model), fontsize=9)
    return figure


def _name(model: Inspected) -> str:
    (D, N), fields, shown = model.cell, model.record.fields, len(model.arrays["shown"])
    some = "" if shown == fields["vocab_size"] else f", {shown} of the tokens"
    accuracy = f"accuracy {model.record.test_accuracy:.4f}"
    return f"$D={D}$, $N={N}$, $V={fields['vocab_size']}$, $N_f={fields['num_facts']}${some}; {accuracy}"

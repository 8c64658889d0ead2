"""A store of made-up runs: every part of a scale, with accuracies that follow a rule instead of any training."""

import json
from pathlib import Path

import numpy as np

from made_records import made
from recallscope.analysis.compare import law_on_cells
from recallscope.analysis.table import as_table
from recallscope.records import Evaluation
from recallscope.runs.store import RunStore
from recallscope.specs import flat_fields
from recallscope.studies.architecture_variants import AGES, MINIMAL, label_of
from recallscope.studies.paper.mechanism import MODELS, inspection_paths
from recallscope.studies.paper_runs import PaperRuns
from recallscope.theory.law import find_law

_SHARES = {"decoded_hit_rate", "auc", "g_vv_block_mass", "g_kq_block_mass", "overwrite_success"}
SCORES = dict.fromkeys(_SHARES, 1.0) | {name: {"hit_rate": 1.0} for name in ("attention", "copy", "shift")}


def rule(spec):
    """A law (MQAR's if the task has none); 1/N_k for one layer and repeated keys; 1/N_f without a convolution.

    Seeds move it: three of them have the rule's mean.
    """
    fields = flat_fields(spec)
    if spec.task.kind == "repeated":
        p = 1 / spec.task.key_repeats if fields["num_layers"] == 1 else 0.98
    elif fields.get("conv_width") == 1:
        p = 1 / spec.task.num_facts
    else:
        law = find_law("full-unified-mv" if fields["model"] == "mamba" else "unified-mv")
        known = fields if fields["task"] in ("ar", "mqar") else fields | {"task": "mqar"}
        p = float(law_on_cells(law, as_table([known]))[0])
    return p + 0.1 * p * (1 - p) * (0, 1, -1)[spec.seed % 3]


def fill(folder: Path, scale, labels=None, *, designed=True, inside=True) -> PaperRuns:
    store = RunStore(folder, create=True)
    runs = PaperRuns(store, scale)
    for label, part in runs.parts.items():
        for cell in part.cells if labels is None or label in labels else ():
            fields = flat_fields(cell.spec)
            entries = cell.spec.model.state_entries_after(cell.spec.task.sequence_length)
            history = [Evaluation(step=1, loss=1 / fields["learning_rate"], accuracy=1.0)]
            facts = {"val_accuracy": 1.0, "parameters": 600 * fields["embed_dim"], "history": history}
            store.put(made(cell.spec, rule(cell.spec), **facts, state_entries=entries))
    runs = PaperRuns(store, scale)
    for part in runs.designed_parts.values() if designed else ():
        part.write(store.root, scale, _circuits(part))
    for record in runs.records(MODELS) if inside else ():
        arrays, scores = inspection_paths(store, record.run)
        arrays.parent.mkdir(exist_ok=True)
        np.savez(arrays, **_arrays(record))
        scores.write_text(json.dumps(SCORES))
    if inside:
        aged = [record for variant in MINIMAL for record in runs.records(label_of("by age", variant))]
        runs.keep_inside(AGES, {record.run: _by_place(record.spec.task.num_facts) for record in aged})
    return runs


def _by_place(facts):
    return {"recall_by_place": [0.5 + 0.4 * place / facts for place in range(facts)]}


def _circuits(part):
    task = part.task.model_dump(mode="json")
    fields = {("task" if name == "kind" else name): value for name, value in task.items()} | {"model": "linear_mamba"}
    cells = [
        fields | {"embed_dim": D, "state_dim": N, "num_layers": 1, "seed": seed}
        for D in part.embed_dims
        for N in part.state_dims
        for seed in range(2)
        if N <= D
    ]
    predicted = law_on_cells(find_law("designed-unified-mv"), as_table(cells))
    return [cell | {"test_accuracy": float(p), "test_queries": 100} for cell, p in zip(cells, predicted, strict=True)]


def _arrays(record):
    task, model = record.spec.task, record.spec.model
    V, L = task.vocab_size, task.length
    facts = np.array([(V // 2 + n, n + 1) for n in range(task.num_facts)])
    table = np.zeros((V, V))
    table[tuple(facts.T)] = 1
    return {
        "ideal_table": table, "hashed_table": np.ones((model.embed_dim, model.state_dim)), "decoded_table": table,
        "ideal_attention": np.eye(L), "attention": np.eye(L), "copied": np.eye(L), "shifted": np.eye(L, k=1),
        "value_operator": np.eye(V, 2 * V), "match_operator": np.eye(2 * V),
        "facts": facts, "shown": np.arange(V), "delay": np.array(0),
    }  # fmt: skip

"""Correlated keys, our own experiment: does error correction pay where keys share tokens, and as much as predicted?

Six bare memories, windows of three tokens, on `template_ar` with 16 facts: keys of two tokens with a template that is
new in every sequence (rho = 1), and the cells of a 4 x 4 table. One query per sequence, because a delta rule that is
asked many times learns to erase the shared tokens while it is asked.

The predictions and the rule of the verdicts below were committed before the runs of seeds 0, 1 and 2.
"""

from __future__ import annotations

from collections.abc import Iterator

from recallscope.measuring.training_runs import RECIPE
from recallscope.presets import Preset
from recallscope.studies.architecture_forms import QUARTER, Form
from recallscope.studies.experiment import Part, Scale, experiment, part

WIDTH = {"conv_width": 3}  # a key of two tokens and its value
CORRELATED = Preset(
    "correlated keys: bare memories where keys share tokens",
    {"kind": "template_ar", "vocab_size": 512, "num_facts": 16, "rho": 1.0},
    {"kind": "delta_net", "embed_dim": 32, "state_dim": 16, **WIDTH},
    RECIPE | {"warmup_steps": 100, "flat_steps": 900, "decay_steps": 3000, "eval_every": 500},
    seeds=3,
)
KEYS = {"template": {}, "table": {"rho": 0.0, "rows": 4, "columns": 4}}
FORMS = (
    Form("linear attention", "adds", "S + k vᵀ", {"kind": "linear_attention"}),
    Form("mLSTM", "adds", "f S + i k vᵀ, normalised", {"kind": "mlstm"}),
    Form("mLSTM without normaliser", "adds", "f S + i k vᵀ", {"kind": "mlstm", "normaliser": False}),
    Form("DeltaNet", "replaces", "S + β k (v - Sᵀ k)ᵀ", {"kind": "delta_net"}),
    Form("Gated DeltaNet", "replaces", "α S, then S + β k (v - Sᵀ k)ᵀ", {"kind": "gated_delta_net"}),
    Form("MesaNet", "solves", "S + k vᵀ, H + k kᵀ; read Sᵀ (H + λ)⁻¹ q", {"kind": "mesa_net"}),
    Form("attention", "keeps all", "every key and value is kept", {"kind": "attention"}),
)
RATES = (0.01, 0.003)
SEARCH_SEED = 100  # no measurement has it
SEARCH = {"warmup_steps": 50, "flat_steps": 200, "decay_steps": 750}


def label_of(what: str, form: Form) -> str:
    """How parts are named."""
    return f"correlated {what}, {form.label}"


@experiment("correlated-keys", "our own: error correction where keys share tokens", presets={"correlated": CORRELATED})
def correlated_keys(scale: Scale) -> Iterator[Part]:
    """For every form: the search of its learning rate, then both kinds of keys with three seeds."""
    if scale == "quick":
        tiny = {"vocab_size": 64, "num_facts": 4}
        for form in (FORMS[3], FORMS[5]):
            train = QUARTER | {"eval_size": 500}
            yield part(label_of("template", form), CORRELATED, task=tiny, model=form.fields | WIDTH, train=train,
                       axes={"seed": [0]}, cut="tiny task")  # fmt: skip
        return
    for form in FORMS:
        yield part(label_of("rates", form), CORRELATED, model=form.fields | WIDTH, train=SEARCH,
                   axes={"learning_rate": RATES, "seed": [SEARCH_SEED]}, turn=-1)  # fmt: skip
        for kind, task in KEYS.items():
            yield part(label_of(kind, form), CORRELATED, task=task, model=form.fields | WIDTH,
                       train={"learning_rate": form.rate}, axes={"seed": range(5 if scale == "paper" else 3)})  # fmt: skip

"""The checklist of the project: what the paper states, where we compute it, which test holds it to be true.

One row per theorem, lemma, remark, algorithm, figure and table, and for the equations and sections that code
cites. A theorem and its restatement in the appendix are one row. Theorems, lemmas and remarks share one
counter per section; equations run through the paper: the first eighty are cited by number, later ones by
LaTeX label. Every citation in src/ must be found here; a test checks. Plain data, standard library only.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

Kind = Literal["theorem", "lemma", "remark", "algorithm", "figure", "table", "equation", "section"]
Status = Literal["exact", "approximate", "measured", "departs", "todo"]


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing the paper says, and what became of it here.

    status: exact (computed as stated, and true as stated), approximate (the paper's approximation, as it
    stands), measured (an experiment), departs (the print cannot be followed; note says what is wrong and what
    is right), todo (no code yet; the note may already warn of the print).
    """

    key: str
    number: str
    labels: tuple[str, ...]
    kind: Kind
    sentence: str
    functions: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    status: Status = "todo"
    note: str = ""
    also: tuple[str, ...] = ()  # further numbers of the same thing: its restatement, its equations, its section

    @property
    def numbers(self) -> tuple[str, ...]:
        """Every number under which the row may be cited."""
        return (self.number, *self.also)


def claim(key: str) -> Claim:
    """The row with that key, such as "thm-4.2"."""
    if key not in _BY_KEY:
        near = difflib.get_close_matches(key, _BY_KEY, n=3, cutoff=0.4)
        hint = f"Did you mean {' or '.join(near)}?" if near else "CLAIMS lists them all."
        raise KeyError(f"{key!r} is none of the {len(CLAIMS)} claims. {hint}")
    return _BY_KEY[key]


def all_labels() -> frozenset[str]:
    """Every LaTeX label that may be cited."""
    return frozenset(label for row in CLAIMS for label in row.labels)


def all_numbers() -> frozenset[str]:
    """Every number that may be cited, such as "Thm 4.2" or "App. E.1"."""
    return frozenset(number for row in CLAIMS for number in row.numbers)


CLAIMS: tuple[Claim, ...] = (
    # The task and the ladder of guarantees
    Claim(
        key="sec-1",
        number="Sec. 1",
        labels=(),
        kind="section",
        sentence=(
            "The dimensions asked for form a ladder: exact recall at N = D = V; exact recall by "
            "hashing once sqrt(N D) is of order N_f log V; recall with high probability once N D "
            "is; and no recall below that order."
        ),
        functions=(
            "recallscope.theory.bounds.jl_condition",
            "recallscope.theory.bounds.least_dim_product",
            "recallscope.theory.bounds.information_bits",
        ),
        tests=(
            "tests/claims/test_lem_4_1_jl_recall.py",
            "tests/claims/test_rem_4_4_dimension_law.py",
            "tests/claims/test_lem_4_5_information_bound.py",
        ),
        status="departs",
        note=(
            "The first rung fails with random filler (Thm 3.1), the second asks for D > V in every "
            "experiment of the paper (Lem 4.1), and of the two sources named for the last only Lem "
            "4.5 is a lower bound."
        ),
    ),
    Claim(
        key="sec-2",
        number="Sec. 2",
        labels=("par:mqar-definition",),
        kind="section",
        sentence=(
            "MQAR lists N_f key-value facts and then asks for every key once, among random "
            "filler; AR asks once, right after the facts, so L = 2 N_f + 1."
        ),
        functions=(
            "recallscope.specs.TaskSpec",
            "recallscope.tasks.draw.draw_batch",
            "recallscope.tasks.zoology.zoology_batch",
            "recallscope.tasks.scoring.score",
        ),
        tests=(
            "tests/tasks/test_task_rules.py",
            "tests/tasks/test_draw_distribution.py",
            "tests/tasks/test_zoology_stream.py",
            "tests/tasks/test_scoring.py",
        ),
        status="departs",
        note=(
            "Filler drawn from the whole vocabulary may repeat a key before it is asked, and the "
            "answer is then not unique; token 0 is never a key, and values do not repeat, in the "
            "generator the paper uses."
        ),
    ),
    Claim(
        key="tab-1",
        number="Tab. 1",
        also=("App. B", "App. B.1"),
        labels=("tab:mqar_notation", "app:notation-and-dims"),
        kind="table",
        sentence=("Notation of the task: V, V_k = V_v = V/2, N_f, L >= 4 N_f, and the lengths of its two sections."),
        functions=("recallscope.specs.TaskSpec",),
        tests=("tests/test_specs.py", "tests/tasks/test_task_rules.py"),
        status="departs",
        note=("L >= 4 N_f is for MQAR; AR has L = 2 N_f + 1, and N_k repeats of the keys need L >= 2 N_f (N_k + 1)."),
    ),
    Claim(
        key="app-i.2",
        number="App. I.2",
        labels=("app-subsec:repeated-keys-queries",),
        kind="section",
        sentence="Every key may be written N_k times with fresh values; the last value is the answer.",
        functions=("recallscope.specs.TaskSpec", "recallscope.tasks.draw.draw_batch"),
        tests=("tests/tasks/test_task_rules.py", "tests/tasks/test_draw_distribution.py"),
        status="exact",
    ),
    Claim(
        key="fig-18",
        number="Fig. 18",
        labels=("fig:mqar-keys",),
        kind="figure",
        sentence=(
            "With repeated keys one layer guesses among the N_k values, about 1/N_k; two layers "
            "or more overwrite the stale value and recover."
        ),
        functions=("recallscope.paper.experiments.repeated_keys.repeated_keys_figure",),
        tests=("tests/paper/test_paper_figures.py",),
        status="measured",
        note="Our runs at scale `small` are cut in size as well; the line under the figure says how.",
    ),
    # The model
    Claim(
        key="eq-1",
        number="Eq. 1",
        labels=("eq:output_block", "par:mamba-background"),
        kind="equation",
        sentence=("The Mamba block: in-projection, causal convolution, SiLU, selective SSM, gate, out-projection."),
        functions=("recallscope.models.full.FullMamba",),
        tests=(
            "tests/claims/test_full_mamba_oracles.py",
            "tests/models/test_full_mamba.py",
            "tests/agreement/test_linear_is_full_with_parts_off.py",
        ),
        status="exact",
    ),
    Claim(
        key="eq-2",
        number="Eq. 2",
        also=("Eq. 16",),
        labels=("eq:TimeVariantMatrices1", "app-eq:TimeVariantMatrices1"),
        kind="equation",
        sentence="B, C and Delta are read off the input, and A-bar = exp(Delta A), B-bar = Delta B.",
        functions=("recallscope.models.full_mixer.FullMixer", "recallscope.ops.selective_scan.selective_scan"),
        tests=(
            "tests/claims/test_full_mamba_oracles.py",
            "tests/agreement/test_selective_scan_forms.py",
            "tests/ops/test_selective_scan.py",
        ),
        status="exact",
    ),
    Claim(
        key="eq-3",
        number="Eq. 3",
        also=("Eq. 17",),
        labels=("eq:original-ssm",),
        kind="equation",
        sentence=(
            "Each channel keeps a state of N entries, h_t = A-bar_t h_{t-1} + x_t B-bar_t, and reads y_t = h_t . C_t."
        ),
        functions=(
            "recallscope.ops.selective_scan.selective_scan",
            "recallscope.ops.selective_scan.selective_scan_loop",
        ),
        tests=("tests/agreement/test_selective_scan_forms.py", "tests/ops/test_selective_scan.py"),
        status="exact",
    ),
    Claim(
        key="eq-4",
        number="Eq. 4",
        also=("Eq. 18", "Eq. 19", "App. B.3"),
        labels=("eq:simple-ssm", "eq:simple-ssm-channel", "eq:simple-ssm-matrix", "app-subsec:ssm-dims"),
        kind="equation",
        sentence=(
            "Without discretisation and with A the identity the state is a sum of outer "
            "products, h_t = h_{t-1} + x_t B_t^T, y_t = h_t C_t."
        ),
        functions=(
            "recallscope.ops.linear_scan.linear_scan",
            "recallscope.ops.linear_scan.hidden_states",
            "recallscope.ops.linear_scan.scan_loop",
        ),
        tests=("tests/agreement/test_linear_scan_forms.py", "tests/ops/test_linear_scan.py"),
        status="exact",
    ),
    Claim(
        key="alg-1",
        number="Alg. 1",
        labels=("alg:mamba",),
        kind="algorithm",
        sentence=(
            "Simplified Mamba: embedding, in-projection, convolution, linear SSM, "
            "out-projection, transposed embedding; nothing else."
        ),
        functions=("recallscope.models.linear.LinearMamba",),
        tests=("tests/claims/test_alg_1_3_linear_mamba.py",),
        status="exact",
    ),
    Claim(
        key="alg-3",
        number="Alg. 3",
        also=("App. G", "App. G.1"),
        labels=("app-alg:mamba-layers", "app:multi-layer-circuits", "app-subsec:multi-layer"),
        kind="algorithm",
        sentence="Simplified Mamba with Lambda layers, each adding its output to its input.",
        functions=("recallscope.models.linear.LinearMamba",),
        tests=("tests/claims/test_alg_1_3_linear_mamba.py",),
        status="exact",
        note=("With one layer it is not Alg. 1, which has no residual; our spec has an explicit field for it."),
    ),
    Claim(
        key="alg-4",
        number="Alg. 4",
        labels=("alg:mamba-2",),
        kind="algorithm",
        sentence=(
            "Simplified Mamba-2: separate projections and convolutions for x, B and C, values "
            "split into M heads or contracted to one, outputs aggregated."
        ),
        functions=("recallscope.models.multihead.MultiHeadMamba",),
        tests=("tests/claims/test_alg_4_multi_head_mamba.py", "tests/agreement/test_multi_head_forms.py"),
        status="departs",
        note=("As printed D channels are split into heads; in the published experiments it is the expanded width 2 D."),
    ),
    Claim(
        key="tab-2",
        number="Tab. 2",
        also=("App. B.2",),
        labels=("tab:mamba_notation",),
        kind="table",
        sentence="Notation of the model: D, N, expand, D_in, D_conv, Lambda.",
        functions=("recallscope.specs.LinearSpec", "recallscope.specs.FullSpec"),
        tests=("tests/test_specs.py",),
        status="exact",
    ),
    Claim(
        key="tab-3",
        number="Tab. 3",
        labels=("tab:mamba_dims",),
        kind="table",
        sentence="Shapes of the model's sequences, weights and SSM coefficients.",
        functions=("recallscope.models.linear.LinearLayer", "recallscope.models.trace.LayerTrace"),
        tests=("tests/claims/test_alg_1_3_linear_mamba.py", "tests/agreement/test_linear_is_full_with_parts_off.py"),
        status="exact",
    ),
    Claim(
        key="tab-5",
        number="Tab. 5",
        also=("App. H", "App. H.1"),
        labels=("tab:head-patterns", "app:mamba-2-multi-head"),
        kind="table",
        sentence="What the heads share: MHA nothing, MQA x and B, MKA x and C, MVA B and C.",
        functions=("recallscope.ops.head_patterns.head_counts",),
        tests=("tests/ops/test_head_patterns.py", "tests/claims/test_alg_4_multi_head_mamba.py"),
        status="exact",
    ),
    Claim(
        key="tab-6",
        number="Tab. 6",
        also=("App. H.3",),
        labels=("tab:mamba2_notation", "app-subsec:mamba-2-notation-and-dims"),
        kind="table",
        sentence="Notation of Mamba-2: M heads of P = D/M channels, head pattern p.",
        functions=("recallscope.specs.MultiHeadSpec",),
        tests=("tests/test_specs.py", "tests/claims/test_alg_4_multi_head_mamba.py"),
        status="departs",
        note="P is 2 D/M in the published experiments.",
    ),
    Claim(
        key="tab-7",
        number="Tab. 7",
        labels=("tab:mamba2_dims",),
        kind="table",
        sentence="Shapes of the simplified Mamba-2.",
        functions=("recallscope.models.multihead.MultiHeadLayer",),
        tests=("tests/claims/test_alg_4_multi_head_mamba.py",),
        status="departs",
        note=(
            "It leaves the shapes of W_x and W_y open; published they are (P, M) for shared values, "
            "else (P, M, 2 D), and (2 D, P, M)."
        ),
    ),
    # The circuits
    Claim(
        key="sec-3",
        number="Sec. 3",
        also=("Sec. 3.1", "App. C"),
        labels=("sec:reverse", "subsec:consturt", "app:recall-circuits-proofs"),
        kind="section",
        sentence=("A linear circuit of convolution and state alone solves MQAR; its weights can be written down."),
        functions=("recallscope.circuits.single.ideal_circuit", "recallscope.circuits.single.compressive_circuit"),
        tests=("tests/claims/test_thm_3_1_ideal_circuit.py", "tests/claims/test_thm_3_2_compressive_circuit.py"),
        status="approximate",
    ),
    Claim(
        key="thm-3.1",
        number="Thm 3.1",
        also=("Thm C.2", "App. C.2", "Eq. 5", "Eq. 6", "Eq. 27", "Eq. 32"),
        labels=(
            "thm:non-compressive-recall",
            "app-thm-non-compressive-recall",
            "eq:perfect-recall-out",
            "eq:perfect-ssm-in",
            "eq:perfect-ssm-update",
        ),
        kind="theorem",
        sentence=(
            "With D = N = V, identity embeddings and a shifting convolution the model answers every MQAR query rightly."
        ),
        functions=("recallscope.circuits.single.ideal_circuit",),
        tests=("tests/claims/test_thm_3_1_ideal_circuit.py",),
        status="departs",
        note=(
            "With filler from the whole vocabulary a filler token may equal a key before it is "
            "asked, and recall is then a coin flip: 0.97 at (V, N_f, L) = (64, 8, 32), 0.87 at (64, "
            "8, 64); it is 1 with zero or value-only filler, and at L = 4 N_f when P_out keeps "
            "values only."
        ),
    ),
    Claim(
        key="thm-3.2",
        number="Thm 3.2",
        also=("Thm C.4", "App. C.3", "Eq. 7", "Eq. 48"),
        labels=(
            "thm:compressive-recall",
            "app-thm-compressive-recall",
            "eq:compressive-recall-weights",
            "eq:noisy-ssm-update",
            "out-vec-decomposition",
        ),
        kind="theorem",
        sentence=(
            "The same circuit with compressed embeddings E and F E answers with high probability "
            "once N D is of order N_f log V."
        ),
        functions=("recallscope.circuits.single.compressive_circuit",),
        tests=("tests/claims/test_thm_3_2_compressive_circuit.py",),
        status="approximate",
        note=(
            "The proof in the appendix has x_{tau-1} for x_tau in the value factor, a missing equals "
            "sign, t for tau under the sum, and the pair (v_i, k_m) for (k_m, v_i)."
        ),
    ),
    Claim(
        key="eq-8",
        number="Eq. 8",
        labels=("eq:compressive-recall-out",),
        kind="equation",
        sentence=(
            "Its output is the sum over pairs of E^T E x_tau times the match of the hashed "
            "previous token with the hashed query."
        ),
        functions=("recallscope.circuits.single.compressive_circuit",),
        tests=("tests/claims/test_thm_3_2_compressive_circuit.py",),
        status="exact",
    ),
    Claim(
        key="lem-c.1",
        number="Lem C.1",
        also=("App. C.1", "Eq. 20", "Eq. 21"),
        labels=("app-lem:jl", "app-subsec:jl-lemma", "app-eq:jl-inner-product", "app-eq:jl-norm-concentration"),
        kind="lemma",
        sentence=(
            "Johnson-Lindenstrauss: d >= c log n / eps^2 dimensions keep all inner products of n vectors within eps."
        ),
        functions=("recallscope.circuits.codes.distortion", "recallscope.circuits.codes.jl_pair"),
        tests=("tests/claims/test_thm_3_2_compressive_circuit.py",),
        status="departs",
        note=(
            "For one-hot vectors c = 4 holds with unit-norm columns and D >= 1 + 4 log V / eps^2; "
            "for Gaussian columns only asymptotically, and for general vectors the proof gives c -> "
            "8."
        ),
    ),
    Claim(
        key="lem-c.3",
        number="Lem C.3",
        labels=("app-lem:jl-consecutive",),
        kind="lemma",
        sentence="Two JL maps in a row, E and F E, keep inner products within eps_v and eps_k at once.",
        functions=("recallscope.circuits.codes.jl_pair",),
        tests=("tests/claims/test_thm_3_2_compressive_circuit.py",),
        status="departs",
        note="The proof needs 9 times the constant and eps_v < eps_k (D > N), and Lem 4.1 drops both.",
    ),
    Claim(
        key="fig-2",
        number="Fig. 2",
        labels=("fig:recallcirc",),
        kind="figure",
        sentence="Overview of the circuit: embed, duplicate and shift, hash, store, match, select, decode.",
        functions=("recallscope.paper.circuit_overview.overview_figure",),
        tests=("tests/paper/test_paper_figures.py",),
        status="departs",
        note="The caption gives F E the shape N x D; it is N x V.",
    ),
    # Reading a trained model
    Claim(
        key="sec-3.2",
        number="Sec. 3.2",
        also=("App. A.3", "App. D"),
        labels=("subsec:mech-interp", "par:equiv-recall", "app-subsec:reverse-engineering"),
        kind="section",
        sentence=(
            "A trained model holds the circuit only up to rotations, so the evidence must be invariant under them."
        ),
        functions=(
            "recallscope.interp.inspection.inspect_model",
            "recallscope.interp.closeness.circuit_closeness",
        ),
        tests=(
            "tests/interp/test_inspection.py",
            "tests/surfaces/test_cli_inspect.py",
        ),
        status="measured",
    ),
    Claim(
        key="eq-9",
        number="Eq. 9",
        labels=("eq:proj-opertators",),
        kind="equation",
        sentence=(
            "The net operators of a model, whatever its rotation: E_in, the projections of keys, "
            "queries and values, G_vv and G_kq."
        ),
        functions=(
            "recallscope.interp.operators.token_operators",
            "recallscope.interp.operators.input_embedding",
        ),
        tests=("tests/claims/test_eq_10_invariant_form.py",),
        status="exact",
    ),
    Claim(
        key="eq-10",
        number="Eq. 10",
        labels=(),
        kind="equation",
        sentence=(
            "With them the output is y_t = sum over tau of G_vv xi_tau xi_tau^T G_kq xi_t, for "
            "pairs xi_t = (x_{t-1}; x_t)."
        ),
        functions=("recallscope.interp.operators.invariant_output",),
        tests=("tests/claims/test_eq_10_invariant_form.py",),
        status="exact",
    ),
    Claim(
        key="eq-11",
        number="Eq. 11",
        also=("App. D.1",),
        labels=("eq:Gvv-Gkq", "app-subsec:invariant-ops"),
        kind="equation",
        sentence=(
            "For the circuit G_vv reads the current token of a stored pair, and G_kq matches its "
            "previous token with the query."
        ),
        functions=("recallscope.interp.block_masses.block_masses",),
        tests=(
            "tests/claims/test_eq_10_invariant_form.py",
            "tests/interp/test_inspection.py",
        ),
        status="departs",
        note=(
            "Printed transposed: with the shapes of Eq. 9 G_vv is (0 | I_V), of shape V x 2V, and "
            "the identity block of G_kq stands top right."
        ),
    ),
    Claim(
        key="eq-12",
        number="Eq. 12",
        labels=("eq:h",),
        kind="equation",
        sentence="The ideal table is H = sum of v_n k_n^T, and y = H q.",
        functions=("recallscope.interp.hash_table.ideal_table",),
        tests=("tests/claims/test_alg_2_state_inversion.py",),
        status="exact",
    ),
    Claim(
        key="eq-13",
        number="Eq. 13",
        labels=("eq:h-prime",),
        kind="equation",
        sentence="The compressed table is H' = sum of (E v_n)(F E k_n)^T: a hash table.",
        functions=("recallscope.interp.hash_table.hashed_table",),
        tests=("tests/claims/test_alg_2_state_inversion.py",),
        status="exact",
    ),
    Claim(
        key="eq-14",
        number="Eq. 14",
        labels=("eq:h-double-prime",),
        kind="equation",
        sentence="Decoded on both sides it is close to the ideal one: H'' = E^T H' F E, about H.",
        functions=("recallscope.interp.hash_table.decoded_table",),
        tests=("tests/claims/test_alg_2_state_inversion.py",),
        status="exact",
    ),
    Claim(
        key="alg-2",
        number="Alg. 2",
        labels=("alg:hidden_state_inversion",),
        kind="algorithm",
        sentence=(
            "Hidden state inversion: project the state to the vocabulary through the output and the query operators."
        ),
        functions=(
            "recallscope.interp.hash_table.invert_state",
            "recallscope.interp.hash_table.hash_tables",
        ),
        tests=("tests/claims/test_alg_2_state_inversion.py",),
        status="departs",
        note=(
            "The inverted state is V x 2V, not 2V x V; H'' is its right half; and H is the sum of "
            "v_n k_n^T, not of k_n^T v_n."
        ),
    ),
    Claim(
        key="tab-4",
        number="Tab. 4",
        also=("App. D.2",),
        labels=("tab:hidden_state_kv_dims", "app-subsec:ssm-key-value-tables"),
        kind="table",
        sentence="Shapes of the hidden state and of the tables H, H', H''.",
        functions=("recallscope.interp.hash_table.hash_tables",),
        tests=("tests/claims/test_alg_2_state_inversion.py",),
        status="exact",
    ),
    Claim(
        key="app-d.3",
        number="App. D.3",
        labels=("app-subsec:hidden-as-hash",),
        kind="section",
        sentence="The hidden state works as a hash table: hash, store, match, retrieve.",
        functions=("recallscope.interp.memory.HashMemory",),
        tests=("tests/interp/test_memory.py",),
        status="measured",
    ),
    Claim(
        key="app-d.4",
        number="App. D.4",
        labels=("app-subsec:inspect-hash",),
        kind="section",
        sentence=("In a rotated model F is nowhere to be found; the table is decoded by the net operators instead."),
        functions=(
            "recallscope.interp.hash_table.invert_state",
            "recallscope.interp.table_scores.score_tables",
        ),
        tests=("tests/claims/test_alg_2_state_inversion.py",),
        status="departs",
        note=(
            "Printed with H' between the operators, whose shapes do not meet: it is the whole state h, as in Alg. 2."
        ),
    ),
    Claim(
        key="app-d.5",
        number="App. D.5",
        labels=("noisy-attn",),
        kind="section",
        sentence="Seen as attention, the model's map B_tau . C_t is close to the ideal map x_{tau-1} . x_t.",
        functions=(
            "recallscope.interp.attention.attention_map",
            "recallscope.interp.attention.ideal_attention",
        ),
        tests=("tests/claims/test_app_d_5_attention.py",),
        status="exact",
    ),
    Claim(
        key="fig-3",
        number="Fig. 3",
        labels=("fig:reversing-hidden",),
        kind="figure",
        sentence="The tables H, H' and H'' of a trained model: sparse, scrambled, sparse again.",
        functions=(
            "recallscope.paper.experiments.mechanism.first_tables_figure",
            "recallscope.figures.mechanism.hash_table_figure",
        ),
        tests=(
            "tests/paper/test_paper_figures.py",
            "tests/surfaces/test_cli_inspect.py",
        ),
        status="measured",
    ),
    Claim(
        key="fig-13",
        number="Fig. 13",
        labels=("app-fig:reversing-hidden",),
        kind="figure",
        sentence="The same for three trained models.",
        functions=(
            "recallscope.paper.experiments.mechanism.tables_figure",
            "recallscope.figures.mechanism.hash_table_figure",
        ),
        tests=(
            "tests/paper/test_paper_figures.py",
            "tests/surfaces/test_cli_inspect.py",
        ),
        status="measured",
    ),
    Claim(
        key="fig-14",
        number="Fig. 14",
        labels=("fig:reversing-attn",),
        kind="figure",
        sentence="Attention maps of trained models beside the ideal one.",
        functions=(
            "recallscope.paper.experiments.mechanism.attentions_figure",
            "recallscope.figures.mechanism.attention_figure",
        ),
        tests=(
            "tests/paper/test_paper_figures.py",
            "tests/surfaces/test_cli_inspect.py",
            "tests/claims/test_app_d_5_attention.py",
        ),
        status="measured",
    ),
    Claim(
        key="fig-15",
        number="Fig. 15",
        labels=("fig:reversing-conv",),
        kind="figure",
        sentence="The convolution copies values (main diagonal) and shifts keys (second diagonal).",
        functions=(
            "recallscope.paper.experiments.mechanism.copies_figure",
            "recallscope.figures.mechanism.copy_shift_figure",
            "recallscope.interp.attention.copy_map",
            "recallscope.interp.attention.shift_map",
        ),
        tests=(
            "tests/paper/test_paper_figures.py",
            "tests/surfaces/test_cli_inspect.py",
            "tests/claims/test_app_d_5_attention.py",
        ),
        status="measured",
        note="The text beside it says that G_kq^T xi_tau is about xi_{tau-1}; it is (0; x_{tau-1}).",
    ),
    Claim(
        key="fig-16",
        number="Fig. 16",
        labels=("app-fig:reversing-operators",),
        kind="figure",
        sentence="G_vv and G_kq of trained models have the predicted blocks.",
        functions=(
            "recallscope.paper.experiments.mechanism.all_operators_figure",
            "recallscope.figures.mechanism.operators_figure",
        ),
        tests=(
            "tests/paper/test_paper_figures.py",
            "tests/surfaces/test_cli_inspect.py",
            "tests/claims/test_eq_10_invariant_form.py",
        ),
        status="measured",
    ),
    # Noise of the designed model
    Claim(
        key="app-e.1",
        number="App. E.1",
        also=("App. E", "Eq. 69", "Eq. 70"),
        labels=("app-subsec:designed-weights", "app:designed-model", "app-eq:compressive-recall-weights"),
        kind="section",
        sentence=(
            "Designed weights: columns of E uniform on the sphere, F the scaled first N rows of a random rotation."
        ),
        functions=(
            "recallscope.circuits.single.designed_circuit",
            "recallscope.circuits.codes.sphere_code",
            "recallscope.circuits.codes.hash_matrix",
            "recallscope.theory.laws.designed.designed_improved_law",
        ),
        tests=(
            "tests/claims/test_thm_3_2_compressive_circuit.py",
            "tests/theory/test_solve.py",
            "tests/surfaces/test_cli.py",
        ),
        status="departs",
        note=(
            "It needs N <= D; and Q[:N] takes rows where the text says columns, harmless since both "
            "are equally distributed."
        ),
    ),
    Claim(
        key="eq-72",
        number="Eq. 72",
        also=("Eq. 71",),
        labels=("eq:G-E-stats-ij",),
        kind="equation",
        sentence=(
            "Inner products of two columns of E have mean 0 and variance 1/D; their law is that "
            "of a coordinate of a random unit vector."
        ),
        functions=("recallscope.circuits.codes.sphere_code", "recallscope.theory.quadrature.sphere_coordinate_cdf"),
        tests=("tests/claims/test_thm_3_2_compressive_circuit.py", "tests/theory/test_sharing.py"),
        status="exact",
    ),
    Claim(
        key="eq-74",
        number="Eq. 74",
        labels=("eq:G-E-tilde-stats-ii",),
        kind="equation",
        sentence="Squared norms of hashed columns have mean 1 and variance about 1/N - 1/D.",
        functions=("recallscope.circuits.codes.hash_matrix", "recallscope.theory.laws.designed.designed_exact_law"),
        tests=("tests/claims/test_thm_3_2_compressive_circuit.py", "tests/theory/test_reference_values.py"),
        status="departs",
        note=(
            "Off by a factor 2: the Beta distribution gives 2 (D - N) / (N (D + 2)), 0.0909 and not "
            "0.0469 at D = 64, N = 16."
        ),
    ),
    Claim(
        key="eq-75",
        number="Eq. 75",
        labels=("eq:G-E-tilde-stats-ij",),
        kind="equation",
        sentence="Inner products of two hashed columns have mean 0 and variance 1/N.",
        functions=("recallscope.circuits.codes.hash_matrix", "recallscope.theory.laws.designed.designed_exact_law"),
        tests=("tests/claims/test_thm_3_2_compressive_circuit.py", "tests/theory/test_reference_values.py"),
        status="departs",
        note=(
            "True on average; given the signal A = S~_mm the variance is A/N, so noise and signal are not independent."
        ),
    ),
    Claim(
        key="eqs-variance",
        number="Eq. `eqs-variance`",
        labels=("eqs-variance", "eqs-normal"),
        kind="equation",
        sentence="Correct, wrong and empty logits are normal with these three means and variances.",
        functions=("recallscope.theory.laws.designed.designed_exact_law",),
        tests=("tests/theory/test_reference_values.py",),
        status="departs",
        note=(
            "In the designed model every token that stood second in a pair is a wrong logit, keys "
            "included: 2 N_f - 2 + 1/N_f of them at AR, not N_f - 1."
        ),
    ),
    Claim(
        key="eq-p-succ-exact",
        number="Eq. `eq:p-succ-exact`",
        labels=("eq:p-succ-exact",),
        kind="equation",
        sentence=(
            "The chance of recall is the integral over the correct logit of the chances of all others to stay below it."
        ),
        functions=("recallscope.theory.laws.designed.designed_exact_law",),
        tests=("tests/theory/test_reference_values.py",),
        status="departs",
        note=(
            "The others are not independent given the correct logit, they share the noise vector; "
            "and their tails are those of a sphere, not Gaussian."
        ),
    ),
    Claim(
        key="eq-p-succ-appx-large-nf",
        number="Eq. `eq:p-succ-appx-large-Nf`",
        labels=("eq:p-succ-appx-large-Nf",),
        kind="equation",
        sentence="With equal variances the chance of recall is E[Phi(Z + 1/sigma)^(V-1)].",
        functions=(
            "recallscope.theory.extremes.success_integral",
            "recallscope.theory.extremes.two_moment_law",
            "recallscope.theory.bounds.inverse_success_integral",
        ),
        tests=("tests/theory/test_reference_values.py",),
        status="approximate",
    ),
    Claim(
        key="eq-m-v",
        number="Eq. `app-eq:m-V`",
        labels=("app-eq:m-V",),
        kind="equation",
        sentence=("The maximum of V Gaussians concentrates near m_V, which is sqrt(2 log V) to leading order."),
        functions=(
            "recallscope.theory.extremes.typical_max",
            "recallscope.theory.extremes.sqrt_two_log",
            "recallscope.theory.extremes.max_moments",
        ),
        tests=("tests/theory/test_reference_values.py",),
        status="departs",
        note=(
            "The two differ by 0.600 at V = 1024 inside Phi; the text uses sqrt(2 log V), the "
            "released code m_V, and the exact half point is 3.2431 where m_V is 3.1234 and sqrt(2 "
            "log V) is 3.7233."
        ),
    ),
    # The laws
    Claim(
        key="sec-4",
        number="Sec. 4",
        also=("Sec. 4.1", "Sec. 4.2", "Sec. 4.3", "App. F"),
        labels=("sec:recall-scaling-laws", "app:scaling-laws-proofs"),
        kind="section",
        sentence=(
            "How recall scales with model and task: a worst case from JL bounds, a mean case "
            "from noise, extended to layers and heads."
        ),
        functions=("recallscope.theory.laws.paper.unified_law", "recallscope.theory.bounds.jl_condition"),
        tests=(
            "tests/claims/test_rem_4_3_unified_law.py",
            "tests/claims/test_lem_4_1_jl_recall.py",
        ),
        status="approximate",
    ),
    Claim(
        key="lem-4.1",
        number="Lem 4.1",
        also=("Lem F.1", "App. F.1", "Eq. 78"),
        labels=(
            "lem:jl-scaling-law",
            "app-lem:jl-scaling-law",
            "eq:y-p-sum",
            "eq:yi",
            "eq:yj",
            "eq:yl",
            "app-eq:jl-scaling-law-eps",
        ),
        kind="lemma",
        sentence=(
            "Recall is perfect if eps_v + eps_k + t eps_v eps_k < 1/2, with eps = sqrt(4 log V / "
            "dimension) and t = 2 N_f for AR, L for MQAR."
        ),
        functions=(
            "recallscope.theory.bounds.jl_condition",
            "recallscope.theory.bounds.jl_least_square",
            "recallscope.theory.bounds.jl_least_state",
        ),
        tests=("tests/claims/test_lem_4_1_jl_recall.py",),
        status="departs",
        note=(
            "c = 4 is not shown for F E; the logit of the query key itself needs eps_v + 3/2 eps_k + "
            "(t - 1) eps_v eps_k < 1/2 unless key logits are removed; and no dimensions make MQAR "
            "with random filler perfect."
        ),
    ),
    Claim(
        key="thm-f.2",
        number="Thm F.2",
        also=("App. F.2",),
        labels=(
            "app-thm:designed-scaling-law",
            "app-thm-designed-ar",
            "app-eq:success-prob-designed-AR-large-Nf",
            "app-eq:success-prob-designed-MQAR",
        ),
        kind="theorem",
        sentence=(
            "The designed model recalls with probability Phi(sqrt(N D / 2 N_f) - sqrt(2 log V)) "
            "at AR, and with the mean of Phi(sqrt(N D / t) - sqrt(2 log V)) over queries at "
            "MQAR."
        ),
        functions=("recallscope.theory.laws.paper.large_context_law",),
        tests=("tests/theory/test_reference_values.py",),
        status="departs",
        note=(
            "The sum has L - 2 N_f + 1 terms over L - 2 N_f, so p tends to 33/32 at L = 64, N_f = "
            "16; queries stand at t = 2 N_f + 2 g, and random filler caps MQAR below 1."
        ),
    ),
    Claim(
        key="rem-f.3",
        number="Rem F.3",
        labels=("app-rem:key-value-selectivity",),
        kind="remark",
        sentence=(
            "A model whose key and value embeddings span orthogonal subspaces lets only "
            "key-value pairs into the answer."
        ),
        functions=(
            "recallscope.circuits.selective.selective_circuit",
            "recallscope.theory.laws.sharing.sharing_law",
            "recallscope.theory.laws.selective.selective_law",
        ),
        tests=(
            "tests/claims/test_rem_f_3_selectivity.py",
            "tests/theory/test_sharing.py",
        ),
        status="departs",
        note=(
            "Orthogonal subspaces cost dimensions: values then have D - N of them (D - N (1 - r) at "
            "the best compromise), so the variance is not 1/D."
        ),
    ),
    Claim(
        key="thm-4.2",
        number="Thm 4.2",
        also=("Thm F.4", "App. F.3", "Eq. 15"),
        labels=(
            "thm:prob-scaling-law",
            "app-thm:prob-scaling-law",
            "eq:success-prob-ar-large-Nf",
            "app-eq:success-prob-ar-large-Nf",
            "app-eq:success-prob-mqar-large-Nf",
        ),
        kind="theorem",
        sentence=(
            "A trained model recalls with probability Phi(sqrt(N D / N_f) - sqrt(2 log V)) at "
            "AR, and at MQAR with the mean over queries, with N_f/2 + t/4 noisy pairs."
        ),
        functions=("recallscope.theory.laws.paper.large_context_law",),
        tests=("tests/claims/test_thm_4_2_trained_law.py",),
        status="departs",
        note=(
            "The sum has one term more than its divisor, 1.021789 at V = 1024, N_f = 16, D = 48, N = "
            "16 where the mean over queries is 0.991761; the correct fact is counted as noise; and "
            "N_f >> N, D never holds in the experiments."
        ),
    ),
    Claim(
        key="rem-4.3",
        number="Rem 4.3",
        also=("Rem F.5", "App. F.4"),
        labels=(
            "rem:practical-scaling-law",
            "app-rem:practical-scaling-law",
            "app-eq:practical-success-prob",
            "eqs-variance-explicit",
            "eqs-variance-appx",
        ),
        kind="remark",
        sentence=(
            "One form fits all: Phi(sqrt(N D / (a N_f + N)) - sqrt(2 log V)), with a = 1 and 5/4 "
            "trained, 2 and 3 designed, for AR and MQAR."
        ),
        functions=(
            "recallscope.theory.laws.paper.unified_law",
            "recallscope.theory.noise.noise_coeff",
            "recallscope.theory.noise.refined_denominator",
        ),
        tests=("tests/claims/test_rem_4_3_unified_law.py",),
        status="departs",
        note=(
            "The refined trained denominator is 5/8 N_f + N/2 + sqrt(2)/4 sqrt((3 N_f + 2 N)(N_f + "
            "N)), so a lies in [1.2374, 1.25); the term N is no independent noise and its ceiling "
            "Phi(sqrt(D) - b) an artefact; a 1/N term is dropped."
        ),
    ),
    Claim(
        key="rem-4.4",
        number="Rem 4.4",
        also=("Rem F.6",),
        labels=("rem:dim-scaling-law", "app-rem:dim-scaling-law", "app-eq:dim-scaling-law-ND"),
        kind="remark",
        sentence="To fail with probability at most delta, N D must be of order N_f log(V / delta).",
        functions=(
            "recallscope.theory.bounds.least_dim_product",
            "recallscope.theory.solve.solve",
            "recallscope.theory.solve.frontier",
        ),
        tests=(
            "tests/claims/test_rem_4_4_dimension_law.py",
            "tests/theory/test_solve.py",
        ),
        status="departs",
        note=(
            "It inverts an approximate law of one circuit, so it is no lower bound; and n_sigma^2 = "
            "2 log(1/delta) is 9.21 at delta = 0.01 where the quantile gives 5.41."
        ),
    ),
    Claim(
        key="lem-4.5",
        number="Lem 4.5",
        also=("Lem F.7", "App. F.5"),
        labels=("lem:info-lower-bound", "app-lem:info-lower-bound", "app-subsec:info-lower-bound"),
        kind="lemma",
        sentence=(
            "Any recurrent state that answers with probability above 1 - delta holds b S of order N_f log V bits."
        ),
        functions=("recallscope.theory.bounds.information_bits", "recallscope.theory.bounds.bits_per_entry"),
        tests=("tests/claims/test_lem_4_5_information_bound.py",),
        status="departs",
        note=(
            "Fano is applied to the block although success is per query: the bound is H(v) - N_f "
            "[h(delta) + delta log2(V_v - 1)], 56.02 and not 71 bits at N_f = 16, V = 1024, delta = "
            "1/2; the order stands."
        ),
    ),
    Claim(
        key="rem-f.8",
        number="Rem F.8",
        labels=("app-rem:info-lower-bound-mamba", "app-eq:info-bound-single-layer", "app-eq:info-bound-multi-layer"),
        kind="remark",
        sentence="For Mamba S = 2 Lambda N D, so Lambda N D is of order N_f log V at least, gates or not.",
        functions=(
            "recallscope.specs.LinearSpec.state_entries",
            "recallscope.specs.FullSpec.state_entries",
            "recallscope.theory.bounds.information_bits",
        ),
        tests=(
            "tests/test_specs.py",
            "tests/claims/test_lem_4_5_information_bound.py",
        ),
        status="exact",
    ),
    Claim(
        key="thm-4.6",
        number="Thm 4.6",
        also=("Thm G.1", "App. G.2"),
        labels=(
            "thm:multi-layer-recall-scaling-laws",
            "app-thm:multi-layer-recall",
            "app-subsec:multi-layer-scaling",
            "eq:success-prob-ar-multi-layer",
            "eq:success-prob-mqar-multi-layer",
            "eq:multi-layer-recall-out",
        ),
        kind="theorem",
        sentence="Lambda layers recall like one layer with state Lambda N.",
        functions=(
            "recallscope.circuits.depth.depth_circuit",
            "recallscope.circuits.depth.designed_depth",
            "recallscope.theory.reduction.effective_state",
        ),
        tests=(
            "tests/claims/test_thm_4_6_layers_law.py",
            "tests/claims/test_thm_g_1_depth_circuit.py",
        ),
        status="departs",
        note=(
            "F E has rank at most D, so Lambda N beyond D brings nothing; only jointly orthonormal "
            "hashes give 1/(Lambda N), independent ones 1/(Lambda N) + (1 - 1/Lambda)/D; and the "
            "proof's a = -1 does not cancel the residual at repeated tokens."
        ),
    ),
    Claim(
        key="thm-4.7",
        number="Thm 4.7",
        also=("Thm H.1", "App. H.2"),
        labels=(
            "thm:multi-head-recall",
            "app-thm:multi-head-recall",
            "app-par:multi-head-circuits",
            "eq:success-prob-ar-large-Nf---",
        ),
        kind="theorem",
        sentence="MQA and MKA recall no better than one head, MVA just as well, MHA no worse.",
        functions=(
            "recallscope.circuits.heads.head_circuit",
            "recallscope.theory.reduction.head_bounds",
            "recallscope.theory.laws.heads.sharing_heads_law",
        ),
        tests=(
            "tests/claims/test_thm_4_7_heads_law.py",
            "tests/claims/test_lem_h_2_to_h_5_head_circuits.py",
            "tests/claims/test_thm_4_7_trained_heads.py",
            "tests/theory/test_sharing_heads.py",
        ),
        status="departs",
        note=(
            "Equality for MQA and MKA is asserted, only at least is shown. The order holds in trained models, sizes "
            "do not: the published models have 2 D channels, so MQA and MKA lose nothing with two heads and keep 2 D/M "
            "dimensions of value with more, and MHA with two heads is one head with state 2 N."
        ),
    ),
    Claim(
        key="lem-h.2",
        number="Lem H.2",
        labels=("lem:mva-recall",),
        kind="lemma",
        sentence="MVA is the single head itself: splitting the values into heads changes nothing.",
        functions=("recallscope.circuits.heads.head_circuit", "recallscope.theory.reduction.head_bounds"),
        tests=("tests/claims/test_lem_h_2_to_h_5_head_circuits.py", "tests/claims/test_alg_4_multi_head_mamba.py"),
        status="exact",
    ),
    Claim(
        key="lem-h.3",
        number="Lem H.3",
        labels=("lem:mqa-recall", "eq:mqa-prob"),
        kind="lemma",
        sentence="MQA recalls like one head with D/M channels.",
        functions=("recallscope.circuits.heads.head_circuit", "recallscope.theory.reduction.head_bounds"),
        tests=(
            "tests/claims/test_lem_h_2_to_h_5_head_circuits.py",
            "tests/claims/test_thm_4_7_heads_law.py",
        ),
        status="departs",
        note="At least that is shown; equality is asserted, by the claim that all hashes must be equal.",
    ),
    Claim(
        key="lem-h.4",
        number="Lem H.4",
        labels=("lem:mka-recall", "eq:mka-prob"),
        kind="lemma",
        sentence="MKA recalls like one head with D/M channels.",
        functions=("recallscope.circuits.heads.head_circuit", "recallscope.theory.reduction.head_bounds"),
        tests=(
            "tests/claims/test_lem_h_2_to_h_5_head_circuits.py",
            "tests/claims/test_thm_4_7_heads_law.py",
        ),
        status="departs",
        note="At least that is shown; equality is asserted, and unlike MQA the M states keep D N entries.",
    ),
    Claim(
        key="lem-h.5",
        number="Lem H.5",
        labels=("lem:mha-recall", "eq:mha-prob"),
        kind="lemma",
        sentence="MHA recalls at least like one head with state N, and at most like one with state M N.",
        functions=(
            "recallscope.circuits.heads.head_circuit",
            "recallscope.theory.reduction.head_bounds",
            "recallscope.theory.laws.designed.designed_exact_law",
        ),
        tests=(
            "tests/claims/test_lem_h_2_to_h_5_head_circuits.py",
            "tests/claims/test_thm_4_7_heads_law.py",
        ),
        status="departs",
        note=(
            "A head carries only D/M of the values, so the bulk noise stays n/(N D); only the 1/N "
            "term falls, to 1/(M N) + (1 - 1/M)/D; that some weights reach state M N is unproved and "
            "fails for the proof's own."
        ),
    ),
    # The experiments
    Claim(
        key="sec-5.1",
        number="Sec. 5.1",
        also=("Sec. 5", "App. A", "App. A.1"),
        labels=("sec:scaling-laws-exp", "app:experiments-supp", "app-subsec:scaling-laws-experiments"),
        kind="section",
        sentence=(
            "Accuracy over the D-N grid, best of seeds: designed, predicted, trained linear and trained full agree."
        ),
        functions=(
            "recallscope.paper.experiments.dn_grid.theory_against_trained",
            "recallscope.paper.law_table.law_table",
        ),
        tests=("tests/paper/test_findings.py", "tests/paper/test_experiments.py"),
        status="measured",
    ),
    Claim(
        key="fig-1",
        number="Fig. 1",
        labels=("fig:scaling-laws-2d-dims",),
        kind="figure",
        sentence="D-N grids of recall for two regimes: designed, theory, trained linear, trained full.",
        functions=(
            "recallscope.paper.experiments.dn_grid.dims_figure",
            "recallscope.analysis.planned.planned_grid",
            "recallscope.analysis.planned.law_grid",
        ),
        tests=(
            "tests/paper/test_paper_figures.py",
            "tests/analysis/test_figure_numbers.py",
        ),
        status="measured",
    ),
    Claim(
        key="fig-7",
        number="Fig. 7",
        labels=("app-fig:scaling-laws-2d-dims",),
        kind="figure",
        sentence="The same for three regimes.",
        functions=("recallscope.paper.experiments.dn_grid.all_dims_figure",),
        tests=("tests/paper/test_paper_figures.py",),
        status="measured",
    ),
    Claim(
        key="sec-5.2",
        number="Sec. 5.2",
        labels=(),
        kind="section",
        sentence=(
            "Accuracy collapses onto Phi(x - b) with x = 1/sigma, and the full model follows "
            "with half the noise coefficient."
        ),
        functions=("recallscope.theory.laws.paper.unified_law",),
        tests=("tests/claims/test_rem_4_3_unified_law.py",),
        status="approximate",
        note="The half is a heuristic of the paper.",
    ),
    Claim(
        key="fig-4",
        number="Fig. 4",
        labels=("fig:scaling-laws-1d-dims",),
        kind="figure",
        sentence="Accuracy against 1/sigma for AR, MQAR and the full model.",
        functions=(
            "recallscope.paper.experiments.curves.curves_figure",
            "recallscope.analysis.collapse_curve.collapse_curve",
        ),
        tests=(
            "tests/paper/test_paper_figures.py",
            "tests/analysis/test_figure_numbers.py",
        ),
        status="measured",
    ),
    Claim(
        key="fig-8",
        number="Fig. 8",
        labels=("app-fig:scaling-laws-1d-dims",),
        kind="figure",
        sentence="The same with the grids behind it.",
        functions=("recallscope.paper.experiments.curves.grids_and_curves_figure",),
        tests=("tests/paper/test_paper_figures.py",),
        status="measured",
    ),
    Claim(
        key="fig-9",
        number="Fig. 9",
        labels=("app-fig:scaling-curves-regimes",),
        kind="figure",
        sentence="The same curves for three regimes, with a = 1, 5/4 and 5/8.",
        functions=("recallscope.paper.experiments.curves.all_curves_figure",),
        tests=("tests/paper/test_paper_figures.py",),
        status="measured",
    ),
    Claim(
        key="fig-11",
        number="Fig. 11",
        also=("App. A.2",),
        labels=("app-fig:large-vocab", "app-subsec:large-vocab"),
        kind="figure",
        sentence="MQAR accuracy at D = 150, N = 75 for V from 1000 to 50000 and L from 1000 to 4000.",
        functions=("recallscope.paper.experiments.large_vocab.large_vocab_figure",),
        tests=("tests/paper/test_paper_figures.py",),
        status="measured",
        note=(
            "Our runs are a scaled-down twin: smaller D, N, L and V, fewer steps (scale `small`). "
            "The paper's own sizes are scale `paper`, and need a GPU."
        ),
    ),
    Claim(
        key="fig-12",
        number="Fig. 12",
        labels=("app-fig:large-vocab-curves",),
        kind="figure",
        sentence="Its normal inverse falls linearly in m_V, with slopes 1.18 to 1.56 where the law says 1.",
        functions=(
            "recallscope.paper.experiments.large_vocab.vocab_curves_figure",
            "recallscope.paper.experiments.large_vocab.vocabulary_slopes",
        ),
        tests=(
            "tests/paper/test_paper_figures.py",
            "tests/paper/test_experiment_numbers.py",
        ),
        status="measured",
        note=(
            "Our slopes are those of the scaled-down twin of Fig. 11. "
            "Excused as an approximate relation; a law with soft selectivity and tight frames "
            "predicts 1.36, 1.21, 1.19 and 1.11 for L = 1000 .. 4000 without a fit."
        ),
    ),
    Claim(
        key="sec-5.3",
        number="Sec. 5.3",
        labels=("subsec:multi-layer-experiments",),
        kind="section",
        sentence="Trained accuracy depends on Lambda N, not on Lambda and N apart.",
        functions=("recallscope.paper.experiments.layers.product_alone",),
        tests=("tests/paper/test_findings.py",),
        status="measured",
    ),
    Claim(
        key="fig-5",
        number="Fig. 5",
        labels=("fig:multi-layer-scaling-laws",),
        kind="figure",
        sentence="N-Lambda grid and its collapse, MQAR.",
        functions=(
            "recallscope.paper.experiments.layers.layers_figure",
            "recallscope.analysis.collapse_curve.collapse_curve",
        ),
        tests=("tests/paper/test_paper_figures.py",),
        status="measured",
    ),
    Claim(
        key="fig-10",
        number="Fig. 10",
        labels=("app-fig:multi-layer-scaling-laws",),
        kind="figure",
        sentence="The same for AR and MQAR; about 0.38 at (N, Lambda) = (12, 1), (6, 2), (4, 3), (3, 4).",
        functions=("recallscope.paper.experiments.layers.all_layers_figure",),
        tests=("tests/paper/test_paper_figures.py",),
        status="measured",
        note="Our runs at scale `small` are cut in size as well; the line under the figure says how.",
    ),
    Claim(
        key="sec-5.4",
        number="Sec. 5.4",
        labels=("subsec:multi-head-experiments",),
        kind="section",
        sentence="Of the head patterns only MHA gains from more heads; MQA and MKA lose.",
        functions=("recallscope.paper.experiments.heads.order_of_patterns",),
        tests=("tests/paper/test_findings.py",),
        status="measured",
    ),
    Claim(
        key="fig-6",
        number="Fig. 6",
        labels=("fig:multi-head-scaling-laws_", "fig:m1_", "fig:m2_", "fig:m3_", "fig:m4_"),
        kind="figure",
        sentence="N-M grids of the four head patterns at fixed D.",
        functions=("recallscope.paper.experiments.heads.heads_figure",),
        tests=("tests/paper/test_paper_figures.py",),
        status="measured",
    ),
    Claim(
        key="tab-8",
        number="Tab. 8",
        also=("App. I", "App. I.1"),
        labels=("fig:mqar_ablation", "app:additional-experiments", "app:mqar_ablation_impl_details"),
        kind="table",
        sentence=(
            "Gate, activation and transition can go, the convolution cannot: 1.00 down to width 2, 0.06 without it."
        ),
        functions=(
            "recallscope.paper.experiments.minimality.ladder",
            "recallscope.paper.experiments.minimality.ladder_figure",
        ),
        tests=(
            "tests/paper/test_experiment_numbers.py",
            "tests/paper/test_paper_figures.py",
        ),
        status="measured",
    ),
    Claim(
        key="fig-17",
        number="Fig. 17",
        labels=("app-fig:circuit-minimality",),
        kind="figure",
        sentence="The same as bars.",
        functions=(
            "recallscope.paper.experiments.minimality.ladder_figure",
            "recallscope.paper.experiments.minimality.ladder",
        ),
        tests=(
            "tests/paper/test_paper_figures.py",
            "tests/paper/test_experiment_numbers.py",
        ),
        status="measured",
    ),
    Claim(
        key="tab-9",
        number="Tab. 9",
        also=("App. K.3",),
        labels=("tab:hyperparams",),
        kind="table",
        sentence="Hyperparameters of every family of experiments.",
        functions=(
            "recallscope.specs.TrainSpec",
            "recallscope.presets.preset_run",
            "recallscope.train.schedule.learning_rate",
        ),
        tests=("tests/train/test_loop.py",),
        status="exact",
    ),
    Claim(
        key="app-k",
        number="App. K",
        also=("App. K.1", "App. K.2", "App. K.4", "App. L.2"),
        labels=("app:impl-details", "app:reproducibility"),
        kind="section",
        sentence=(
            "How the models are trained: fresh batches at every step, AdamW, the best state by validation accuracy."
        ),
        functions=("recallscope.train.loop.train_run",),
        tests=("tests/train/test_loop.py",),
        status="exact",
        note=(
            "The full model there is unmodified mamba-ssm; ours has its names and its start, and is "
            "held against two other implementations."
        ),
    ),
    Claim(
        key="app-k.5",
        number="App. K.5",
        labels=("app-subsec:seeds",),
        kind="section",
        sentence=("The best of several seeds is reported, since capacity is meant and not the luck of optimisation."),
        functions=(
            "recallscope.analysis.seeds.convergence_grid",
            "recallscope.analysis.seeds.convergence_by_best",
        ),
        tests=("tests/analysis/test_accuracy_grid.py",),
        status="measured",
    ),
    Claim(
        key="fig-19",
        number="Fig. 19",
        labels=("app-fig:seed-grids",),
        kind="figure",
        sentence="Grids of five seeds of the full model beside their best.",
        functions=("recallscope.paper.experiments.seeds.seed_grids_figure",),
        tests=("tests/paper/test_paper_figures.py",),
        status="measured",
    ),
    Claim(
        key="fig-20",
        number="Fig. 20",
        labels=("app-fig:seed-reliability",),
        kind="figure",
        sentence="How many seeds converge, by cell and by the cell's best accuracy.",
        functions=(
            "recallscope.paper.experiments.seeds.reliability_figure",
            "recallscope.analysis.seeds.convergence_grid",
            "recallscope.analysis.seeds.convergence_by_best",
        ),
        tests=(
            "tests/paper/test_paper_figures.py",
            "tests/analysis/test_accuracy_grid.py",
        ),
        status="measured",
    ),
    Claim(
        key="app-j",
        number="App. J",
        labels=("app:sim_and_diff_huang",),
        kind="section",
        sentence=(
            "An earlier construction compresses values only and needs N = V_k and D of order V_k "
            "+ log V_v; this one compresses both."
        ),
        functions=("recallscope.theory.bounds.huang_dims",),
        tests=("tests/claims/test_rem_4_4_dimension_law.py",),
        status="departs",
        note=(
            "It points to row (iii) of Fig. 1 for V_k = 512; row (iii) stands in Fig. 7 and has V_k "
            "= 256, and V_k = 512 is row (i)."
        ),
    ),
    Claim(
        key="tab-10",
        number="Tab. 10",
        also=("App. L", "App. L.3"),
        labels=("tab:licenses", "app:licenses", "app:acknowledgements"),
        kind="table",
        sentence="Licences of the software the paper uses; we copy none of it.",
        functions=("recallscope.paper.licences.licence_rows",),
        tests=("tests/paper/test_licences.py",),
        status="measured",
        note="Of the four only PyTorch is a dependency of ours.",
    ),
)

_BY_KEY = {row.key: row for row in CLAIMS}

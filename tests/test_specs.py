"""Specs: what they accept, what they refuse and how they say so, and that their name is their content."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from recallscope.architectures.mamba import LinearMambaSpec, MambaSpec, MultiHeadSpec
from recallscope.records import RecordError, parse_record, record_text
from recallscope.specs import ARCHITECTURES, TASKS, RunSpec, TrainSpec, flat_fields, parse_task
from recallscope.tasks.associative_recall import ARSpec, MQARSpec, RepeatedSpec


def run_spec(**changes):
    fields = {"task": MQARSpec(vocab_size=512, num_facts=16), "model": LinearMambaSpec(embed_dim=32, state_dim=16)}
    return RunSpec(**({"seed": 3} | fields | changes))


def test_lengths_follow_from_the_facts():
    assert MQARSpec(vocab_size=512, num_facts=16).length == 64
    assert ARSpec(vocab_size=512, num_facts=16).length == 33
    assert RepeatedSpec(vocab_size=512, num_facts=10, key_repeats=5).length == 120
    assert MQARSpec(vocab_size=512, num_facts=16) == MQARSpec(vocab_size=512, num_facts=16, length=64)


def test_derived_numbers():
    task = RepeatedSpec(vocab_size=512, num_facts=10, key_repeats=3, length=128)
    assert (task.context_length, task.num_slots, task.num_queries) == (60, 34, 10)
    assert ARSpec(vocab_size=64, num_facts=4).num_queries == 1
    deep = LinearMambaSpec(embed_dim=64, state_dim=6, num_layers=2)
    assert (deep.residual, deep.inner_dim, deep.effective_state, deep.state_entries) == (True, 128, 12, 2 * 128 * 6)
    assert not LinearMambaSpec(embed_dim=64, state_dim=6).residual
    assert MultiHeadSpec(embed_dim=60, state_dim=4, num_heads=6, head_pattern="MVA").head_dim == 20
    assert MambaSpec(embed_dim=64, state_dim=16).state_entries == 128 * 16
    assert TrainSpec().total_steps == 2000


@pytest.mark.parametrize(
    ("fields", "phrases"),
    [
        ({"vocab_size": 511, "num_facts": 16}, ["511", "odd", "512"]),
        ({"vocab_size": 32, "num_facts": 16}, ["16 distinct keys", "15", "34"]),
        ({"vocab_size": 512, "num_facts": 16, "length": 62}, ["62", "64"]),
        ({"vocab_size": 512, "num_facts": 16, "length": 65}, ["65", "odd"]),
        ({"vocab_size": 512, "num_facts": 16, "kind": "ar", "length": 64}, ["64", "33"]),
        ({"vocab_size": 512, "num_facts": 16, "key_repeats": 2}, ["key_repeats=2", "repeated"]),
        ({"vocab_size": 512, "num_facts": 10, "kind": "repeated", "key_repeats": 5, "length": 118}, ["118", "120"]),
    ],
)
def test_a_task_that_cannot_be_drawn_is_refused_with_the_way_out(fields, phrases):
    with pytest.raises(ValidationError) as caught:
        parse_task(fields)
    for word in phrases:
        assert word in str(caught.value)


@pytest.mark.parametrize("bad", [0, -1, 1.5, "512", True, None, 10**10, float("nan")])
def test_sizes_are_whole_positive_numbers(bad):
    with pytest.raises(ValidationError):
        MQARSpec(vocab_size=bad, num_facts=1)


def test_unknown_fields_and_changes_are_refused():
    with pytest.raises(ValidationError, match="vocabsize"):
        MQARSpec(vocab_size=64, num_facts=4, vocabsize=3)
    with pytest.raises(ValidationError, match="frozen"):
        MQARSpec(vocab_size=64, num_facts=4).num_facts = 5
    with pytest.raises(ValidationError, match="does not divide"):
        MultiHeadSpec(embed_dim=60, state_dim=4, num_heads=7, head_pattern="MVA")
    with pytest.raises(ValidationError):
        LinearMambaSpec.model_validate({"kind": "mamba", "embed_dim": 4, "state_dim": 4})


def shuffled(value, flip):
    if isinstance(value, dict):
        return {k: shuffled(v, flip) for k, v in sorted(value.items(), reverse=flip)}
    return value


def test_the_hash_is_the_content_not_the_order_of_fields():
    spec = run_spec()
    data = json.loads(spec.model_dump_json())
    for flip in (False, True):
        again = RunSpec.model_validate_json(json.dumps(shuffled(data, flip)))
        assert again == spec
        assert again.content_hash() == spec.content_hash()


def test_the_hash_is_stable_across_processes_and_versions_of_this_file():
    """A literal: if it changes, every store out there forgets its runs. Change it only with a migration."""
    assert run_spec().content_hash() == "7dcd81274af31c23ef5fe930"  # another process: tests/test_architecture.py


REQUIRED = {  # by kind: every field without a default
    "ar": ("vocab_size", "num_facts", "length"),
    "mqar": ("vocab_size", "num_facts", "length"),
    "repeated": ("vocab_size", "num_facts", "length"),
    "linear_mamba": ("embed_dim", "state_dim", "residual"),
    "multihead": ("embed_dim", "state_dim", "num_heads", "head_pattern"),
    "mamba": ("embed_dim", "state_dim"),
    "mamba2": ("embed_dim", "state_dim", "num_heads"),
}
MEMORIES = [
    "attention", "delta_net", "gated_delta_net", "gla", "kda", "linear_attention", "mesa_net", "mlstm", "retnet",
    "rwkv7",
]  # fmt: skip
REQUIRED |= dict.fromkeys(MEMORIES, ("embed_dim", "state_dim", "residual"))
RECALL = {"power_a": 1.0, "filler": "random", "key_repeats": 1}
BLOCK = {
    "expand": 2, "conv_width": 2, "num_layers": 1, "residual": True, "norm": "rms", "skip": True, "conv_bias": True,
}  # fmt: skip
BARE = {
    "num_heads": 1, "expand": 1, "conv_width": 2, "num_layers": 1, "norm": "none", "conv": "full",
    "activation": "none", "qk_norm": "none", "output_norm": "none", "output_gate": "none", "mlp_width": 0,
    "stem_width": 0, "plain_values": False,
}  # fmt: skip
ROTARY = {"rotary": False, "rotary_base": 10_000.0}
UNIT, WRITES, FORGETS = {"qk_norm": "l2"}, {"write_start": 0.12}, {"forget_start": 0.9975}
DEFAULTS = {
    "ar": RECALL,
    "mqar": RECALL,
    "repeated": RECALL,
    "linear_mamba": {"expand": 2, "conv_width": 2, "num_layers": 1},
    "multihead": {"expand": 2, "conv_width": 2},
    "mamba": BLOCK | {"gate": True, "activation": "silu", "transition": "selective", "delta_rank": "low"},
    "mamba2": BLOCK | {"head_pattern": "MVA"},
    "attention": BARE | ROTARY,
    "delta_net": BARE | UNIT | WRITES,
    "gated_delta_net": BARE | UNIT | WRITES | FORGETS,
    "gla": BARE | FORGETS | {"gate_temper": 16.0},
    "kda": BARE | UNIT | WRITES | FORGETS,
    "linear_attention": BARE | {"feature_map": "identity", "normaliser": False},
    "mesa_net": BARE | UNIT | WRITES | FORGETS | {"forget": False, "least_ridge": 0.0},
    "mlstm": BARE | FORGETS | {"normaliser": True},
    "retnet": BARE | ROTARY | {"slowest": 5},
    "rwkv7": BARE | WRITES | FORGETS | {"bonus": False},
    "train": {
        "batch_size": 128, "accumulate": 1, "learning_rate": 0.01, "warmup_steps": 100, "flat_steps": 400,
        "decay_steps": 1500, "beta_1": 0.9, "beta_2": 0.95, "weight_decay": 0.0, "label_smoothing": 0.1,
        "clip_norm": 1.5, "stop_accuracy": 1.0, "eval_every": 250, "eval_size": 10_000, "embedding_std": 1.0,
        "training_facts": "target", "curriculum_accuracy": 0.9, "curriculum_share": 0.5,
    },
}  # fmt: skip


def test_defaults_never_change_their_meaning():
    """A run's name leaves defaults out, so a changed default would give old names to new runs. New fields may come."""
    specs = {name: TASKS.find(name) for name in ("ar", "mqar", "repeated")}
    specs |= {name: ARCHITECTURES.find(name) for name in ("linear_mamba", "multihead", "mamba", "mamba2", *MEMORIES)}
    for name, spec in (specs | {"train": TrainSpec}).items():
        fields = {field: info for field, info in spec.model_fields.items() if field != "kind"}
        assert tuple(field for field in REQUIRED.get(name, ()) if not fields[field].is_required()) == ()
        assert {field: fields[field].default for field in DEFAULTS[name]} == DEFAULTS[name], name
        known = {*REQUIRED.get(name, ()), *DEFAULTS[name]}
        assert set(fields) == known, f"{name}: pin the defaults of {set(fields) - known} here"


def test_a_new_field_with_a_default_renames_nothing():
    class Wider(LinearMambaSpec):
        noise: float = 0.0

    plain = LinearMambaSpec(embed_dim=32, state_dim=16)
    fields = plain.model_dump()
    assert Wider(**fields).identity() == plain.identity()
    assert Wider(**fields, noise=0.5).identity() != plain.identity()


def test_the_identity_leaves_defaults_out():
    assert run_spec().identity() == {
        "task": {"kind": "mqar", "vocab_size": 512, "num_facts": 16, "length": 64},
        "model": {"kind": "linear", "embed_dim": 32, "state_dim": 16, "residual": False},  # as it was hashed first
        "train": {"kind": "train"},
        "seed": 3,
    }


def test_fields_are_flat_and_need_no_class():
    flat = flat_fields(run_spec().model_dump(mode="json"))
    assert (flat["task"], flat["model"], flat["embed_dim"], flat["batch_size"]) == ("mqar", "linear_mamba", 32, 128)
    odd = {"task": {"kind": "x", "size": 3}, "model": {"kind": "y", "size": 4, "blocks": [1, 2]}, "seed": 1}
    assert flat_fields(odd) == {"task": "x", "size": 3, "model": "y", "model.size": 4, "blocks": "[1,2]", "seed": 1}


def test_every_field_changes_the_hash():
    spec = run_spec()
    others = [
        run_spec(seed=4),
        run_spec(task=MQARSpec(vocab_size=512, num_facts=15)),
        run_spec(task=MQARSpec(vocab_size=512, num_facts=16, filler="zero")),
        run_spec(model=LinearMambaSpec(embed_dim=32, state_dim=16, residual=True)),
        run_spec(model=MambaSpec(embed_dim=32, state_dim=16)),
        run_spec(train=TrainSpec(batch_size=32)),
    ]
    assert len({s.content_hash() for s in [spec, *others]}) == 1 + len(others)


KINDS = st.sampled_from(["ar", "mqar", "repeated"])


@given(st.integers(1, 40), st.integers(0, 30), KINDS, st.integers(1, 4), st.integers(0, 9))
def test_valid_tasks_survive_json(N_f, extra_vocab, kind, N_k, extra_slots):
    N_k = N_k if kind == "repeated" else 1
    length = None if kind == "ar" else 2 * N_f * (N_k + 1) + 2 * extra_slots
    sizes = {"vocab_size": 2 * (N_f + 1 + extra_vocab), "num_facts": N_f, "key_repeats": N_k, "length": length}
    task = parse_task({"kind": kind} | sizes)
    assert type(task).model_validate_json(task.model_dump_json()) == task
    assert task.num_slots >= task.num_queries


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "list"),
        ("{}", "schema_version"),
        ('{"schema_version": true}', "schema_version"),
        (record_text({"schema_version": 999, "run": "0123456789abcdef01234567"}), "newer"),
        ('{"schema_version": 999, "run": "0123456789abcdef01234567"}', "digest is missing"),
        ('{"schema_version": 1}', "an integer from 2"),
        ('{"schema_version": 2}', "name of a run"),
        ('{"schema_version": 2, "run": "0123456789abcdef01234567", "spec": {}}', "identity"),
        (b"\xff\xfe", "not JSON"),
    ],
)
def test_what_is_no_record_is_named_as_such(text, message):
    with pytest.raises(RecordError, match=message):
        parse_record(text)

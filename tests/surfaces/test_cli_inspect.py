"""`recallscope inspect` as a user meets it, and its pictures by what they show."""

import dataclasses
import json
import math
import re
import shlex

import matplotlib as mpl
import numpy as np
import pytest
import torch

from closeness import assert_near
from recallscope.architectures.capabilities import HasKeys, HasState
from recallscope.architectures.mamba import LinearMambaSpec, Mamba2Spec, MambaSpec
from recallscope.architectures.model import build_model
from recallscope.architectures.user_module import user_module
from recallscope.circuits.linear import designed_circuit, ideal_circuit
from recallscope.figures.mechanism import (
    attention_figure,
    copy_shift_figure,
    fill_figure,
    hash_table_figure,
    operators_figure,
)
from recallscope.figures.style import save_figure
from recallscope.interp.attention import MOST_TOKENS, tokens_to_show
from recallscope.interp.decoders import Behaviour, ShiftScores
from recallscope.interp.hash_table import hash_tables
from recallscope.interp.inspection import Inspection, inspect_model
from recallscope.interp.states import states_at
from recallscope.interp.verdict import describe
from recallscope.specs import parse_task
from recallscope.tasks.batch import Score
from recallscope.tasks.drawing import sample_batch
from recallscope.train.weights import read_weights, write_weights

TASK = parse_task({"vocab_size": 32, "num_facts": 4, "filler": "values"})
BEHAVIOUR = Behaviour(
    accuracy=0.5, standard_error=0.1, queries=16, recall_by_place=(0.5,), wrong_other_value=1.0, wrong_old_value=0.0,
    wrong_else=0.0, margin=0.0, low_margin=0.0,
)  # fmt: skip
PICTURES = ["behaviour", "hash_table", "attention", "copy_and_shift", "operators", "fill"]


@pytest.fixture(scope="module")
def ideal(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "ideal.safetensors"
    write_weights(path, ideal_circuit(32), TASK)
    return path


def test_the_ideal_circuit_is_recognised_and_json_has_the_contract_and_nothing_else(ideal, run, tmp_path):
    code, out, _ = run("inspect", ideal, "--out", tmp_path, "--num-sequences", 40)
    assert code == 0
    assert "this is the recall circuit; its state is a hash table" in out
    assert "100.00% of G_vv and 100.00% of G_kq" in out
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"scores.json"} | {f"{name}.{kind}" for name in PICTURES for kind in ("png", "svg")}
    for name in PICTURES:
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (tmp_path / f"{name}.svg").read_text(encoding="utf-8")[:2000]
    code, out, err = run("inspect", ideal, "--json", "--num-sequences", 40)
    assert (code, err) == (0, "")
    scores = json.loads(out)
    for name in ("accuracy", "g_vv_block_mass", "g_kq_block_mass", "decoded_hit_rate", "overwrite_success"):
        assert scores[name] == 1, name
    assert scores["auc"] > 0.99
    kept = json.loads((tmp_path / "scores.json").read_text(encoding="utf-8"))
    assert sorted(kept.pop("pictures")) == sorted(written - {"scores.json"})
    assert scores == kept | {"pictures": []}


def test_the_same_seed_gives_the_same_scores_and_the_same_figure_the_same_file(ideal, run, tmp_path):
    one, two = (run("inspect", ideal, "--json", "--num-sequences", 20, "--seed", 3)[1] for _ in range(2))
    assert one == two
    for folder in ("one", "two"):
        save_figure(fill_figure((1, 2), (1.0, 0.9), (1.0, 0.95), num_facts=2), tmp_path / folder / "fill")
    for path in sorted((tmp_path / "one").iterdir()):
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def test_the_training_example_of_the_help_runs_as_printed(run, tmp_path):
    _, out, _ = run("inspect", "--help")
    text = " ".join(re.sub(r"[│╭╮╰╯─]", " ", out).split())
    (example,) = set(re.findall(r"recallscope inspect (?:--[a-z-]+ [0-9a-z]+ ?)+", text))
    code, out, err = run(*shlex.split(example)[1:], "--out", tmp_path, "--num-sequences", 200)
    assert code == 0, err
    assert "verdict" in out
    assert {"weights.safetensors", "record.json", "scores.json"} <= {path.name for path in tmp_path.iterdir()}
    code, out, _ = run("inspect", tmp_path, "--json", "--num-sequences", 20)  # what it wrote can be inspected again
    assert code == 0
    assert json.loads(out)["accuracy"] > 0.9


@pytest.mark.parametrize(
    "spec",
    [MambaSpec(embed_dim=8, state_dim=4), Mamba2Spec(embed_dim=8, state_dim=4, num_heads=2)],
    ids=lambda s: s.kind,
)
def test_full_mamba_is_reported_for_what_it_is(run, tmp_path, spec):
    path = tmp_path / "full.safetensors"
    model = build_model(spec, 32, torch.Generator().manual_seed(0))
    write_weights(path, model, TASK)
    code, out, _ = run("inspect", path, "--num-sequences", 40, "--out", tmp_path / "out")
    assert code == 0
    assert "no fixed G_vv" in out
    assert (tmp_path / "out" / "attention.png").exists()
    assert not (tmp_path / "out" / "operators.png").exists()


def test_verdicts_differ_as_the_models_do(run, tmp_path):
    small = designed_circuit(32, 4, 2, torch.Generator().manual_seed(0))
    untrained = build_model(LinearMambaSpec(embed_dim=8, state_dim=4), 32, torch.Generator().manual_seed(0))
    for model, phrase in ((small, "too small or too noisy"), (untrained, "not the recall circuit")):
        write_weights(tmp_path / "w.safetensors", model, TASK)
        code, out, _ = run("inspect", tmp_path / "w.safetensors", "--num-sequences", 40)
        assert code == 0
        assert phrase in out


def test_mistakes_are_answered_in_one_paragraph(ideal, run, tmp_path):
    def refused(*arguments):
        code, out, err = run("inspect", *arguments)
        assert (code, out) == (2, "")
        assert "Traceback" not in err
        return err

    assert "--preset mechanism" in refused()
    assert "no such weights file" in refused(tmp_path / "missing.safetensors")
    assert "either WEIGHTS or --preset" in refused(ideal, "--preset", "mechanism")
    assert "--embed-dim" in refused(ideal, "--embed-dim", 64)
    assert "num_sequences=1" in refused(ideal, "--num-sequences", 1)
    assert "mechanism" in refused("--preset", "mechanim")
    (tmp_path / "text.safetensors").write_text("no weights", encoding="utf-8")
    assert "not a safetensors file" in refused(tmp_path / "text.safetensors")


def test_of_a_large_vocabulary_some_tokens_are_shown_the_facts_among_them():
    task = parse_task({"vocab_size": 1024, "num_facts": 8})
    batch = sample_batch(task, 1, torch.Generator().manual_seed(0))
    shown = tokens_to_show(batch, 1024)
    assert len(shown) == MOST_TOKENS
    assert int((shown < 512).sum()) == MOST_TOKENS // 2
    assert torch.equal(shown, shown.sort().values)
    assert set(batch.keys[0].tolist()) | set(batch.values[0].tolist()) <= set(shown.tolist())
    model = designed_circuit(1024, 32, 16, torch.Generator().manual_seed(0))
    few, every = hash_tables(model, batch, tokens=shown), hash_tables(model, batch)
    assert_near(few.decoded, every.decoded[:, shown][:, :, shown])
    assert_near(few.ideal, every.ideal[:, shown][:, :, shown])


def image_of(ax):
    (image,) = ax.images
    return np.asarray(image.get_array()), image.get_clim()


def main_axes(figure):
    return [ax for ax in figure.axes if ax.images and ax.get_title()]


def test_table_pictures_show_their_tables():
    rng = np.random.default_rng(0)
    ideal, hashed, decoded = np.zeros((8, 8)), rng.normal(size=(4, 3)), rng.normal(size=(8, 8))
    facts = [(5, 1), (7, 2)]
    figure = hash_table_figure(ideal, hashed, decoded, facts=facts, label="D=4")
    said, stored, meant, close_up = main_axes(figure)
    for ax, table in ((said, ideal), (stored, hashed), (meant, decoded), (close_up, decoded[np.ix_([5, 7], [1, 2])])):
        np.testing.assert_array_equal(image_of(ax)[0], table)
    assert [ax.get_title()[:5] for ax in (said, stored, meant)] == ["$H_t$", "$H'_t", "$H''_"]
    assert image_of(meant)[1] == (-1, 1)
    assert [label.get_text() for label in meant.get_xticklabels()] == ["keys", "values"]
    np.testing.assert_array_equal(meant.collections[0].get_offsets(), [(1, 5), (2, 7)])
    assert "D=4" in figure.get_supxlabel()


def test_operator_pictures_frame_the_predicted_blocks():
    for width, delay, corners in ((2, 0, [(3.5, -0.5), (3.5, -0.5)]), (4, 1, [(7.5, -0.5), (11.5, 3.5)])):
        figure = operators_figure(np.zeros((4, 4 * width)), np.zeros((4 * width, 4 * width)), delay=delay)
        axes = main_axes(figure)
        assert [ax.get_title() for ax in axes] == ["$G_{vv}$", "$G_{kq}$"]
        assert [ax.patches[0].get_xy() for ax in axes] == corners
        assert len(axes[1].get_xticklabels()) == 2 * width


def test_maps_over_positions_mark_facts_and_queries():
    alpha = np.eye(8)
    for figure in (attention_figure(alpha, alpha, context_length=4), copy_shift_figure(alpha, alpha, context_length=4)):
        for ax in main_axes(figure):
            np.testing.assert_array_equal(image_of(ax)[0], alpha)
            assert [label.get_text() for label in ax.get_xticklabels()] == ["facts", "queries"]
            assert {float(line.get_xdata()[0]) for line in ax.lines if line.get_xdata()[0] == 3.5} == {3.5}


def test_the_fill_picture_has_the_points_and_the_line():
    figure = fill_figure((1, 2, 4), (1.0, 0.9, 0.5), (1.0, 0.95, 0.6), num_facts=2)
    (ax,) = figure.axes
    line, points = ax.lines[:2]
    np.testing.assert_array_equal(line.get_ydata(), (1.0, 0.95, 0.6))
    np.testing.assert_array_equal(points.get_ydata(), (1.0, 0.9, 0.5))


def test_drawing_leaves_the_callers_style_alone():
    before = dict(mpl.rcParams)
    fill_figure((1, 2), (1.0, 0.9), (1.0, 0.95), num_facts=2)
    assert dict(mpl.rcParams) == before


def test_the_verdict_speaks_of_what_was_measured():
    found = inspect_model(ideal_circuit(32), TASK, torch.Generator().manual_seed(0), num_sequences=4)
    lines = describe(Score(1.0, 0.0, 16), found, TASK)
    assert lines[0] == "recall 1.0000 ± 0.0000"
    assert lines[-1].startswith("verdict: ")


@pytest.mark.parametrize(
    ("shifted", "unshifted", "said"),
    [
        (3.8, -0.1, "answer one place later (+3.8 sd), not in place (-0.1 sd);"),
        (-0.6, 0.6, "answer neither one place later (-0.6 sd) nor in place (+0.6 sd);"),
        (0.1, 2.5, "answer in place (+2.5 sd), not one place later (+0.1 sd);"),
        (-4.0, 0.2, "answer one place later (-4.0 sd), not in place (+0.2 sd);"),
        (2.0, 2.0, "answer one place later (+2.0 sd) and in place (+2.0 sd);"),
        (math.nan, math.nan, "answer neither one place later (+nan sd) nor in place (+nan sd);"),
    ],
)
def test_where_keys_answer_follows_the_numbers_and_the_line_is_stated(shifted, unshifted, said):
    found = Inspection(behaviour=BEHAVIOUR, shift_test=ShiftScores(shifted, unshifted))
    (line,) = [line for line in describe(Score(0.5, 0.0, 16), found, TASK) if line.startswith("shift")]
    assert said in line
    assert line.endswith("2 sd away from unrelated places are called an answer")


def test_an_untrained_full_model_is_not_said_to_answer():
    model = build_model(MambaSpec(embed_dim=8, state_dim=4), 32, torch.Generator().manual_seed(0))
    found = inspect_model(model, TASK, torch.Generator().manual_seed(0), num_sequences=20)
    said = "\n".join(describe(Score(0.03, 0.01, 80), found, TASK))
    assert "keys answer neither one place later" in said
    assert "recall 0.0300 ± 0.0100, not above the 0.2500 of guessing any of the 4 values of the context" in said
    assert "though" not in said


def test_the_verdict_names_each_criterion_that_failed_and_by_how_much(ideal):
    found = inspect_model(read_weights(ideal)[0], TASK, torch.Generator().manual_seed(0), num_sequences=4)
    worse = dataclasses.replace(found.operators, g_vv_block_mass=0.5, closeness=0.9)
    last = describe(Score(1.0, 0.0, 16), dataclasses.replace(found, operators=worse), TASK)[-1]
    assert last == (
        "verdict: not the recall circuit, or not yet: share of G_vv in its block 0.500 (0.450 short of 0.95), "
        "closeness to the circuit 0.900 (0.050 short of 0.95)."
    )
    last = describe(Score(0.8, 0.0, 16), found, TASK)[-1]
    assert last.endswith("too small or too noisy to recall well: recall 0.800 (0.100 short of 0.9).")


NETS = """
import torch
from torch import nn


class Bag(nn.Module):
    '''Sums up what it has read so far.'''

    def __init__(self, vocab_size, width=8):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.dropout = nn.Dropout(0.5)
        self.head = nn.Linear(width, vocab_size)

    def forward(self, tokens):
        return self.head(self.dropout(self.embedding(tokens).cumsum(dim=1)))


class Seen(Bag):
    '''The same, but it shows its memory.'''

    def state_after(self, tokens):
        return (self.embedding(tokens).sum(dim=1)[:, None, :, None].detach(),)
"""


def weights_of(name, folder):
    (folder / "nets.py").write_text(NETS, encoding="utf-8")
    model = build_model(user_module(f"{folder / 'nets.py'}:{name}", width=6), 32, torch.Generator().manual_seed(0))
    write_weights(folder / f"{name}.safetensors", model, TASK)
    return folder / f"{name}.safetensors"


def test_a_module_of_ones_own_is_shown_by_its_answers_and_told_what_is_left_out(run, tmp_path):
    few = ("--trust-code", "--num-sequences", 40)
    code, out, err = run("inspect", weights_of("Bag", tmp_path), *few, "--out", tmp_path / "out")
    assert code == 0, err
    assert out.startswith("recall 0.")
    assert "by place of the fact, oldest first" in out
    assert "wrong answers" in out
    (left,) = [line for line in out.splitlines() if line.startswith("left out: attribution_hit_rate")]
    assert left.endswith(
        "Bag does not offer HasAttention: a model that can be written as attention: what is read is a weighted sum of "
        "what earlier tokens offered."
    )
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"scores.json", "behaviour.png", "behaviour.svg"}
    scores = json.loads((tmp_path / "out" / "scores.json").read_text(encoding="utf-8"))
    assert scores["g_vv_block_mass"] is scores["probe"] is scores["overwrite"] is None
    assert 0 <= scores["behaviour"]["accuracy"] <= 1
    assert {item["section"] for item in scores["left_out"]} >= {"operators", "attention", "overwrite", "probe"}
    again = run("inspect", weights_of("Bag", tmp_path), *few, "--json")[1]
    assert json.loads(again)["behaviour"] == scores["behaviour"]  # dropout is off


def test_a_capability_of_the_module_inside_is_found(tmp_path):
    model, _ = read_weights(weights_of("Seen", tmp_path), trust_code=True)
    assert model.capability(HasState) is model.module
    assert model.capability(HasKeys) is None
    tokens = torch.tensor([[1, 2, 3]])
    (state,) = states_at(model, tokens, 1)
    assert_near(state[0, 0, :, 0], model.module.embedding.weight[[1, 2]].sum(dim=0))

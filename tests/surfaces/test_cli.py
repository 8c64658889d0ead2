"""The command line as a user meets it: examples run as printed, JSON alone on stdout, mistakes answered with exit
code 2."""

import json
import re
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from commands import refused
from recallscope.cli.main import main

COMMANDS = ["predict", "size", "sample", "design", "train", "laws", "claims"]
CELL = ["--vocab-size", "1024", "--num-facts", "16"]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_example_in_the_help_runs(command, run):
    code, out, _ = run(command, "--help")
    assert code in (0, None)
    lines = (line.strip() for line in out.splitlines())
    examples = [line for line in lines if line.startswith(f"recallscope {command}")]
    assert examples
    for example in dict.fromkeys(examples):
        code, out, err = run(*shlex.split(example)[1:])
        assert code == 0, (example, err)
        assert out


def test_predict_json(run):
    code, out, err = run("predict", *CELL, "--embed-dim", 48, "--state-dim", 16, "--json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert answer["task"]["length"] == 64
    (row,) = answer["rows"]
    assert (row["embed_dim"], row["state_dim"]) == (48, 16)
    assert row["laws"]["unified"] == pytest.approx(0.814741, abs=1e-6)
    assert row["laws"]["unified-mv"] == pytest.approx(0.932594, abs=1e-6)
    assert row["laws"]["trained"] == pytest.approx(0.991761, abs=1e-6)
    assert row["laws"]["trained-sharing"] == pytest.approx(0.9665, abs=1e-4)
    assert answer["headline"] == row["headline"]
    headline = row["headline"]
    assert (headline["law"], headline["extrapolated"]) == ("trained-sharing", "")
    assert headline["probability"] == row["laws"]["trained-sharing"]
    assert "4 D <= V" in headline["compared"]
    assert "docs/REPRODUCTION.md" in headline["support"]
    assert row["laws"]["designed-improved"] == pytest.approx(0.6319, abs=1e-4)


def test_predict_lists_give_every_pair_and_null_where_no_design_exists(run):
    _, out, _ = run("predict", *CELL, "--embed-dim", 8, 16, "--state-dim", 4, 12, "--law", "designed-exact", "--json")
    rows = json.loads(out)["rows"]
    assert [(r["embed_dim"], r["state_dim"]) for r in rows] == [(8, 4), (8, 12), (16, 4), (16, 12)]
    assert rows[1]["laws"]["designed-exact"] is None
    assert rows[3]["laws"]["designed-exact"] > rows[0]["laws"]["designed-exact"]


def test_predict_puts_the_recommended_law_first(run):
    for model, law in [
        ("linear_mamba", "trained-sharing"),
        ("mamba", "full-mamba"),
        ("delta_net", "delta"),
        ("mlstm", "gated"),
        ("retnet", "retention"),
        ("linear_attention", "trained-sharing"),
    ]:
        _, out, _ = run("predict", *CELL, "--embed-dim", 48, "--state-dim", 16, "--model", model)
        assert law in out.splitlines()[1]
    _, out, _ = run("predict", *CELL, "--embed-dim", 48, "--state-dim", 16, "--designed")
    assert "designed-improved" in out.splitlines()[1]
    code, _, err = run("predict", *CELL, "--embed-dim", 48, "--state-dim", 16, "--model", "delta_net", "--designed")
    assert (code, "hand-constructed delta_net" in err) == (2, True)


def test_laws_of_architectures_speak_about_one_bare_layer(run):
    dims = ["--embed-dim", 32, "--state-dim", 4, 8]
    _, out, _ = run("predict", *CELL, *dims, "--model", "attention", "--json")
    assert [row["headline"]["probability"] for row in json.loads(out)["rows"]] == [None, 1.0]
    _, out, _ = run("predict", *CELL, *dims[:4], "--model", "mesa_net", "--num-layers", 2)
    assert "p_recall -" in out
    assert "speaks about one layer only" in " ".join(out.split())
    code, _, err = run("predict", *CELL, *dims, "--model", "rwkv7")
    assert code == 2
    assert "no law of the catalogue predicts the recall of rwkv7" in err
    laws = json.loads(run("laws", "--json")[1])
    assert laws["recommended"]["kda"] == "delta"
    (delta,) = (law for law in laws["laws"] if law["name"] == "delta")
    assert {"delta_net", "gated_delta_net", "kda"} <= set(delta["models"])
    assert not {"mlstm", "mesa_net"} & set(delta["models"])


def test_size_counts_the_state_of_the_architecture(run):
    """MesaNet also keeps the symmetric sum of k kᵀ; attention every key and value."""
    task = ["--target", 0.9, "--vocab-size", 512, "--num-facts", 8]
    answer = json.loads(run("size", *task, "--model", "mesa_net", "--json")[1])
    assert answer["law"] == "least-squares"
    for point in answer["frontier"]:
        D, N = point["embed_dim"], point["state_dim"]
        assert point["state_entries"] == N * D + N * (N + 1) // 2
        assert point["parameters"] is None
    answer = json.loads(run("size", *task, "--model", "attention", "--json")[1])["answer"]
    assert (answer["state_dim"], answer["state_entries"]) == (5, 32 * (5 + answer["embed_dim"]))


def test_predict_layers_and_heads(run):
    def p(*more):
        return json.loads(run("predict", *CELL, "--law", "unified", "--json", *more)[1])["rows"][0]

    two, one = (p("--embed-dim", 64, "--state-dim", N, "--num-layers", layers) for N, layers in ((6, 2), (12, 1)))
    assert two["laws"] == one["laws"]
    assert two["headline"]["extrapolated"] == "extrapolated: compared for Lambda = 1 only"
    assert one["headline"]["extrapolated"] == ""
    mha = p("--embed-dim", 64, "--state-dim", 6, "--num-heads", 4, "--head-pattern", "MHA")
    assert mha["laws"]["unified"] < mha["laws_upper"]["unified"]
    mqa = p("--embed-dim", 64, "--state-dim", 6, "--num-heads", 4, "--head-pattern", "MQA")
    assert mqa["laws"] == p("--embed-dim", 16, "--state-dim", 6)["laws"]


def test_predict_answers_in_a_few_lines_and_shows_every_law_on_request(run):
    dims = ["--embed-dim", 64, "--state-dim", 16]
    _, out, _ = run("predict", *CELL, *dims)
    assert "0.989" in out
    assert "compared for 64 <= V <= 1024" in " ".join(out.split())
    assert "unified-refined" not in out
    _, every, _ = run("predict", *CELL, *dims, "--all")
    assert every.startswith(out.splitlines()[0])
    assert all(name in every for name in ("unified-refined", "designed-improved", "full-unified"))


def test_answers_beyond_the_comparisons_are_marked(run):
    """Layers, wide embeddings, one state dimension: in text, in tables, in JSON, in `size`."""
    small = ["--vocab-size", 1024, "--num-facts", 16]
    _, out, _ = run("predict", *small, "--embed-dim", 32, "--state-dim", 4, "--num-layers", 2)
    assert "extrapolated: compared for Lambda = 1 only" in out
    _, out, _ = run("predict", *small, "--embed-dim", 32, 514, "--state-dim", 2, 4)
    assert "* extrapolated: compared for 8 <= D <= 64, 4 D <= V only" in " ".join(out.split())
    assert out.count("*") == 3  # two cells and the legend
    _, out, _ = run("predict", "--vocab-size", 64, "--num-facts", 8, "--embed-dim", 1, 8, "--state-dim", 4)
    assert re.search(r"^1 +-\n8 +0\.\d+\n- no answer: embed_dim=1 is below 2", out, re.MULTILINE)
    _, out, _ = run("size", "--target", 0.5, *small, "--embed-dim", 300, "--json")
    assert json.loads(out)["answer"]["extrapolated"].startswith("extrapolated: compared for")
    _, out, _ = run("size", "--target", 0.5, *small, "--embed-dim", 300)
    assert "extrapolated: compared for" in out
    _, out, _ = run("laws", "--json")
    assert all(law["compared"] for law in json.loads(out)["laws"])


def test_size_prefers_what_was_compared_and_marks_the_rest(run):
    flags = ["--target", 0.99, "--vocab-size", 1024, "--num-facts", 16, "--law", "unified-mv"]
    answer = json.loads(run("size", *flags, "--json")[1])
    rows = answer["frontier"]
    assert answer["answer"]["extrapolated"] == ""
    assert any(row["extrapolated"] for row in rows)
    _, out, _ = run("size", *flags)
    starred = [line for line in out.splitlines() if "* " in line and line.split()[0][:-1].isdecimal()]
    assert len(starred) == sum(row["extrapolated"] != "" for row in rows)


def test_size_takes_heads(run):
    flags = ["--target", 0.9, "--vocab-size", 512, "--num-facts", 16, "--state-dim", 4, "--num-heads", 6]
    answer = json.loads(run("size", *flags, "--head-pattern", "MHA", "--json")[1])
    assert answer["law"] == "trained-sharing-heads"
    assert answer["answer"]["embed_dim"] % 6 == 0
    refused(run("size", *flags), "--head-pattern")
    refused(run("size", *flags[:6], "--embed-dim", 64, "--num-heads", 7, "--head-pattern", "MVA"), "num_heads=7")


def test_size_json(run):
    code, out, err = run("size", "--target", 0.99, *CELL, "--embed-dim", 64, "--law", "unified", "--json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert answer["target"] == 0.99
    assert answer["law"] == "unified"
    assert answer["answer"]["state_dim"] == 27
    assert answer["answer"]["real"] == pytest.approx(26.712274, abs=1e-6)
    _, out, _ = run("size", "--target", 0.99, *CELL, "--law", "unified", "--json")
    frontier = json.loads(out)["frontier"]
    assert {"embed_dim": 51, "state_dim": 51}.items() <= frontier[-1].items()


def test_size_unreachable_is_an_answer(run):
    code, out, err = run("size", "--target", 0.9999, *CELL, "--embed-dim", 8, "--json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert answer["answer"] is None
    assert "unreachable" in answer["reason"]


def test_sample_json_targets_are_as_long_as_tokens(run):
    _, out, _ = run("sample", "--vocab-size", 64, "--num-facts", 4, "--num-sequences", 3, "--json")
    answer = json.loads(out)
    assert len(answer["tokens"]) == len(answer["targets"]) == 3
    for tokens, targets in zip(answer["tokens"], answer["targets"], strict=True):
        facts = dict(zip(tokens[0:8:2], tokens[1:8:2], strict=True))
        asked = {p: t for p, t in enumerate(targets) if t != -100}
        assert len(tokens) == len(targets) == 16
        assert asked == {p: facts[tokens[p]] for p in asked}
        assert len(asked) == 4


def test_sample_repeats_zoology(run):
    _, out, _ = run(
        "sample", "--vocab-size", 64, "--length", 24, "--num-facts", 4, "--power-a", 0.01, "--num-sequences", 2,
        "--filler", "zero", "--stream", "zoology", "--json",
    )  # fmt: skip
    first = json.loads(out)["tokens"][0]
    assert first == [3, 54, 30, 59, 14, 48, 11, 45, 30, 0, 3, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0, 0, 14, 0]


@pytest.mark.parametrize("command", ["laws", "claims"])
def test_tables_in_json(command, run):
    code, out, err = run(command, "--json")
    assert (code, err) == (0, "")
    assert len(json.loads(out)[command]) > 20


def test_bad_input_is_answered_in_one_paragraph(run):
    dims = ["--embed-dim", "64", "--state-dim", "16"]
    refused(run("predict", "--vocab-size", 1023, "--num-facts", 16, *dims), "1023", "odd", "1024")
    refused(run("predict", "--vocab-size", 16, "--num-facts", 16, *dims), "num_facts=16", "34")
    refused(run("predict", *CELL, "--length", 32, *dims), "length=32", "64")
    refused(run("predict", *CELL, "--length", 65, *dims), "odd")
    refused(run("predict", *CELL, *dims, "--law", "unfied"), "unfied", "unified")
    refused(run("predict", *CELL, "--embed-dim", 0, "--state-dim", 16), "embed_dim=0")
    refused(run("predict", *CELL, "--embed-dim", 10**12, "--state-dim", 16), "1000000000")
    refused(run("predict", *CELL, "--embed-dim", "nan", "--state-dim", 16), "nan")
    refused(run("predict", *CELL, *dims, "--num-heads", 4), "--head-pattern")
    refused(run("predict", *CELL, *dims, "--num-heads", 7, "--head-pattern", "MVA"), "num_heads=7")
    refused(run("size", "--target", 1.5, *CELL), "1.5", "between 0 and 1")
    refused(run("size", "--target", "nan", *CELL), "nan")
    refused(run("size", "--target", 0.9, *CELL, *dims), "nothing is left to find")
    refused(run("size", "--target", 0.9, "--vocab-size", 64), "num_facts")
    refused(run("sample", *CELL, "--num-sequences", 0), "num_sequences=0")
    refused(run("sample", *CELL, "--num-sequences", 10**9), "tokens")
    refused(run("sample", *CELL, "--power-a", -1), "power_a=-1")
    refused(run("sample", *CELL, "--power-a", "inf"), "power_a=inf")
    refused(run("sample", *CELL, "--seed", -1), "seed=-1")
    refused(run("sample", *CELL, "--filler-seed", 1), "zoology")
    refused(run("sample", "--vocab-size", 64, "--num-facts", 16, "--stream", "zoology"), "64")
    refused(run("nonsense"))
    refused(run("predict"))


NUMBERS = st.one_of(
    st.integers(-3, 70),
    st.sampled_from([10**6, 10**18, -(10**18), 2**63]),
    st.sampled_from(["", "x", "1.5", "nan", "inf", "1e3", "-0", "٣"]),
).map(str)


@given(
    command=st.sampled_from(["predict", "size", "sample"]),
    flags=st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "--vocab-size",
                    "--num-facts",
                    "--embed-dim",
                    "--state-dim",
                    "--length",
                    "--num-layers",
                    "--target",
                    "--task",
                    "--law",
                    "--seed",
                    "--num-sequences",
                    "--power-a",
                    "--filler",
                    "--key-repeats",
                ]
            ),
            st.one_of(NUMBERS, st.sampled_from(["ar", "mqar", "repeated", "unified", "trained", "zero"])),
        ),
        max_size=8,
    ),
)
@settings(max_examples=300, deadline=None)
def test_no_command_line_whatever_ends_in_a_traceback(command, flags):
    arguments = [word for pair in flags for word in pair]
    try:
        code = main([command, *arguments, "--json"])
    except SystemExit as stop:
        code = stop.code
    assert code in (0, 2), arguments


def test_heads_are_also_predicted_by_counting_channels(run):
    """Thm 4.7 in D dimensions, and what trained models with 2 D channels do."""
    flags = ["--vocab-size", 512, "--num-facts", 16, "--embed-dim", 60, "--state-dim", 4, "--num-heads", 2]
    code, out, _ = run("predict", *flags, "--head-pattern", "MQA", "--law", "trained-sharing", "--json")
    assert code == 0
    (row,) = json.loads(out)["rows"]
    code, out, _ = run("predict", *flags, "--head-pattern", "MQA", "--json")
    headline = json.loads(out)["headline"]
    assert headline["law"] == "trained-sharing-heads"
    assert row["laws"]["trained-sharing"] < 0.35 < 0.5 < headline["probability"]


def test_a_bound_without_meaning_is_left_blank(run):
    """Designed weights do not exist for the upper bound of MHA, M N = 96 > D."""
    flags = ["--vocab-size", 512, "--num-facts", 16, "--embed-dim", 60, "--state-dim", 16, "--num-heads", 6]
    row = json.loads(run("predict", *flags, "--head-pattern", "MHA", "--json")[1])["rows"][0]
    assert row["laws"]["designed-improved"] > 0.6
    assert row["laws_upper"]["designed-improved"] is None

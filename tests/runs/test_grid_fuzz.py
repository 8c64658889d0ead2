"""Whatever stands in a grid file: a grid, or a clear word; never a traceback, never a run by accident."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from recallscope.cli.main import main

EXAMPLE = (Path(__file__).resolve().parents[2] / "examples" / "tiny_grid.toml").read_bytes()
VALUES = st.sampled_from(
    ["1", "-1", "0", "2.5", "1e400", "nan", "inf", "true", '"x"', "[]", "[1, 2]", "[[1]]", "{}", "{ from = 1, to = 3 }",
     "{ from = 1, to = 999999999999999 }", '"4 * num_facts"', '"state_dim >"', '"__import__(1)"', "1979-05-27",
     "0x" + "f" * 6000, '"""\n"""', "''", "[1, 'a', 2.5]", '["state_dim > embed_dim"]', "9" * 30]
)  # fmt: skip
NAMES = st.sampled_from(
    ["name", "preset", "seed", "skip", "task", "model", "train", "axes", "zip", "derived", "kind", "vocab_size",
     "num_facts", "length", "embed_dim", "state_dim", "num_layers", "batch_size", "learning_rate", "filler", "unknown",
     "eval_size"]
)  # fmt: skip
LINES = st.one_of(
    st.tuples(NAMES, VALUES).map(lambda pair: f"{pair[0]} = {pair[1]}"),
    st.sampled_from(
        ["[task]", "[model]", "[train]", "[axes]", "[zip]", "[[zip]]", "[derived]", "[unknown]", "[[axes]]", "["]
    ),
    st.text(max_size=20),
)


@st.composite
def grid_files(draw):
    """Noise; the example cut off, with bytes changed, or with lines added, dropped and moved."""
    kind = draw(st.sampled_from(["noise", "cut", "bytes", "lines", "lines", "made"]))
    if kind == "noise":
        return draw(st.binary(max_size=100))
    if kind == "cut":
        return EXAMPLE[: draw(st.integers(0, len(EXAMPLE)))]
    if kind == "bytes":
        data = bytearray(EXAMPLE)
        for place, value in draw(st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)), max_size=4)):
            data[place] = value
        return bytes(data)
    if kind == "made":
        return "\n".join(draw(st.lists(LINES, max_size=12))).encode()
    lines = EXAMPLE.decode().splitlines()
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(lines)))
        lines[place : place + draw(st.integers(0, 2))] = draw(st.lists(LINES, max_size=2))
    return "\n".join(lines).encode(errors="replace")


@given(data=grid_files())
@settings(max_examples=250, deadline=None)
def test_no_grid_file_whatever_ends_in_a_traceback(data):
    with tempfile.TemporaryDirectory() as folder:
        grid = Path(folder) / "grid.toml"
        grid.write_bytes(data)
        code = main(["sweep", str(grid), "--store", str(Path(folder) / "store"), "--dry-run", "--json"])
        assert code in (0, 2)
        assert not (Path(folder) / "store").exists()
        assert grid.read_bytes() == data


def test_nesting_without_end_is_answered_too(tmp_path, capsys):
    for number, text in enumerate(["a = " + "[" * 5000, "[a." + "a." * 3000 + "a]", "x = " + "{a=" * 2000]):
        grid = tmp_path / f"{number}.toml"
        grid.write_text(text)
        assert main(["sweep", str(grid), "--store", str(tmp_path / "store"), "--dry-run"]) == 2
        assert "TOML" in capsys.readouterr().err or number == 1

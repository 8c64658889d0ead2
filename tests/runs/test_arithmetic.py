"""The pocket calculator: what it knows it gets right, what it does not know it refuses by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recallscope.runs.arithmetic import calculate

FIELDS = {"num_facts": 16, "num_layers": 4, "state_dim": 8, "embed_dim": 32, "learning_rate": 0.5}
FIELDS |= {"head_pattern": "MHA"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4 * num_facts", 64),
        ("60 / num_layers", 15.0),
        ("61 // num_layers", 15),
        ("-state_dim + 2 * (embed_dim - 1) % 7", -2),
        ("max(1, min(state_dim, 4))", 4),
        ("ceil(embed_dim / 3)", 11),
        ("round(sqrt(embed_dim))", 6),
        ("state_dim > embed_dim", False),
        ("2 < state_dim <= 8", True),
        ("state_dim * num_layers != 32 or head_pattern == 'MHA'", True),
        ("not (state_dim < embed_dim and embed_dim < 10)", True),
        ("round(learning_rate / 3, 3)", 0.167),
        ("learning_rate * 2", 1.0),
    ],
)
def test_formulas_of_grids_come_out_right(text, value):
    assert calculate(text, FIELDS) == value


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("__import__('os').system('ls')", "not arithmetic"),
        ("().__class__", "not arithmetic"),
        ("num_facts ** 999999999", "not arithmetic"),
        ("round(5, -1000000000) > 1", "from -15 to 15 digits"),  # Python's own would take hours
        ("round(5, 1000000000)", "from -15 to 15 digits"),
        ("[x for x in (1,)]", "not arithmetic"),
        ("lambda: 1", "not arithmetic"),
        ("open('x')", "not arithmetic"),
        ("min(*state_dim)", "not arithmetic"),
        ("nonsense + 1", "no value here"),
        ("1 / 0", "division by zero"),
        ("head_pattern * 9", "not a number"),
        ("head_pattern < 3", "not supported"),
        ("1e14 * 1e14", "beyond"),
        ("4 *", "not a formula"),
        ("", "not a formula"),
        ("x = 3", "not a formula"),
        ("(" * 150, "not a formula"),
        ("1 + " * 100 + "1", "characters"),
    ],
)
def test_all_else_is_refused_with_a_reason(text, says):
    with pytest.raises(ValueError, match=says):
        calculate(text, FIELDS)


@given(st.text(max_size=40) | st.text(alphabet="()+-*/%<>=!., 0123456789abcdefn_'\"[]{}", max_size=60))
def test_no_text_whatever_does_more_than_calculate(text):
    try:
        value = calculate(text, FIELDS)
    except ValueError:
        return
    assert isinstance(value, int | float | str | bool)

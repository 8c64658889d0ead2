"""Inverses: the answer reaches the target, one unit less does not, and "unreachable" is an answer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recallscope.theory.law import find_law
from recallscope.theory.solve import SizeQuery, closed_form, frontier, solve

UNIFIED = find_law("unified")


def ask(law="unified", target=0.99, unknown="state_dim", **known):
    fields = {"vocab_size": 1024, "num_facts": 16, "embed_dim": 64, "state_dim": 32, "num_layers": 1, unknown: None}
    return SizeQuery(law=find_law(law), target=target, **fields | known)


@pytest.mark.parametrize(
    ("unknown", "known", "real", "value"),
    [
        ("state_dim", {"embed_dim": 64}, 26.712274, 27),
        ("embed_dim", {"state_dim": 32}, 59.472088, 60),
        ("num_facts", {}, 19.167219, 19),
        ("vocab_size", {}, 2437.5667, 2436),
    ],
)
def test_closed_forms_of_the_unified_law(unknown, known, real, value):
    question = ask(unknown=unknown, **known)
    answer = solve(question, unknown)
    assert closed_form(question, unknown) == pytest.approx(real, abs=1e-4)
    assert answer.value == value
    assert answer.probability >= 0.99


@pytest.mark.parametrize(
    "law", ["unified", "unified-mv", "trained-sharing", "designed-improved", "trained", "designed-exact"]
)
@pytest.mark.parametrize("unknown", ["state_dim", "embed_dim", "num_facts", "vocab_size", "num_layers"])
def test_the_answer_is_the_last_that_reaches_the_target(law, unknown):
    question = ask(law, 0.9, unknown, **{"embed_dim": 64, "state_dim": 8} | {unknown: None})
    answer = solve(question, unknown)
    if answer.value is None:
        assert answer.reason.startswith("unreachable")
        return
    p = lambda value: float(question.evaluate(**{unknown: value}))  # noqa: E731
    assert p(answer.value) >= 0.9
    worse = {"state_dim": -1, "embed_dim": -1, "num_layers": -1, "num_facts": 1, "vocab_size": 2}[unknown]
    least = {"embed_dim": 8}.get(unknown, 1)
    if answer.value + worse >= least and "do not fit" not in answer.reason:
        assert p(answer.value + worse) < 0.9


@given(
    target=st.floats(0.01, 0.9999),
    V=st.integers(17, 2000).map(lambda half: 2 * half),
    N_f=st.integers(1, 16),
    D=st.integers(2, 300),
    N=st.integers(1, 300),
    unknown=st.sampled_from(["state_dim", "embed_dim", "num_facts", "vocab_size", "num_layers"]),
    law=st.sampled_from(["unified", "unified-mv", "trained", "designed-unified", "full-unified"]),
)
@settings(max_examples=400)
def test_no_question_raises_and_no_answer_misses(target, V, N_f, D, N, unknown, law):
    sizes = {"vocab_size": V, "num_facts": N_f, "embed_dim": D, "state_dim": N}
    question = ask(law, target, unknown, **sizes | {unknown: None})
    answer = solve(question, unknown)
    if answer.value is None:
        assert answer.reason.startswith("unreachable")
        assert answer.probability is None
    else:
        assert answer.value >= 1
        assert float(question.evaluate(**{unknown: answer.value})) >= target


@pytest.mark.parametrize("law", ["unified", "trained-sharing"])
def test_frontier_points_are_minimal(law):
    question = ask(law, 0.95, embed_dim=None, state_dim=None)
    points = frontier(question)
    assert len(points) > 5
    square = frontier(ask(embed_dim=None, state_dim=None))[-1]
    assert square.embed_dim == square.state_dim == 51  # of `unified`: D_sq = 50.961336
    D, N = np.array([p.embed_dim for p in points]), np.array([p.state_dim for p in points])
    assert np.all(np.diff(D) < 0)
    assert np.all(np.diff(N) > 0)
    assert np.all(N <= D)
    assert np.all(question.evaluate(embed_dim=D, state_dim=N) >= 0.95)
    inner = D > N
    assert np.all(question.evaluate(embed_dim=D[inner] - 1, state_dim=N[inner]) < 0.95)
    assert np.all(question.evaluate(embed_dim=D[1:], state_dim=N[1:] - 1) < 0.95)
    D, N = points[0].embed_dim, points[0].state_dim
    assert points[0].state_entries == 2 * D * N
    assert points[0].parameters == 1024 * D + 4 * D**2 + 4 * D + 4 * D * N


def test_a_low_target_asks_for_no_dimension_below_two():
    (point,) = frontier(law="trained-sharing", target=0.15, vocab_size=16, num_facts=2)
    assert (point.embed_dim, point.state_dim) == (2, 1)


def test_questions_with_too_much_or_too_little_are_refused():
    with pytest.raises(ValueError, match="state_dim"):
        solve(ask(unknown="embed_dim", state_dim=None), "embed_dim")
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        solve(ask(target=1.0), "state_dim")


def test_a_dip_hides_no_answer():
    """This law falls from N = 1 to 2 before it grows: the least N that reaches a target on the first hill is 1."""
    fields = {"vocab_size": 1484, "num_facts": 1, "embed_dim": 4, "state_dim": None}
    p = find_law("designed-exact")(**fields | {"state_dim": [1, 2, 3, 4]})
    assert p[1] < p[0] - 0.009
    assert solve(ask("designed-exact", float(p[0] + p[1]) / 2, **fields), "state_dim").value == 1
    between = ask("designed-exact", float(p[2:].max()) - 1e-9, **fields)
    expected = 1 + int(np.argmax(p >= between.target))
    assert solve(between, "state_dim").value == expected


def test_defaults_ask_for_trained_models_and_mqar():
    answer = solve(vocab_size=128, num_facts=8, embed_dim=68)
    assert (answer.unknown, answer.value) == ("state_dim", 6)
    assert answer == solve(SizeQuery(vocab_size=128, num_facts=8, embed_dim=68), "state_dim")
    assert answer.extrapolated == ""
    assert SizeQuery().law is find_law("trained-sharing")
    assert SizeQuery(law="unified").law is find_law("unified")
    assert SizeQuery(head_pattern="MQA").law is find_law("trained-sharing-heads")
    with pytest.raises(ValueError, match="embed_dim, state_dim is left to find: leave out exactly one of embed_dim"):
        solve(vocab_size=128, num_facts=8)
    with pytest.raises(ValueError, match="nothing is left to find"):
        solve(vocab_size=128, num_facts=8, embed_dim=68, state_dim=4)


def test_answers_say_where_they_leave_what_was_compared():
    beyond = solve(vocab_size=4096, num_facts=16, embed_dim=64, target=0.5)
    assert beyond.extrapolated.startswith("extrapolated: compared for")
    assert solve(ask(unknown="num_layers", num_layers=None, state_dim=2), "num_layers").extrapolated.endswith(
        "Lambda = 1 only"
    )
    points = frontier(law="unified", vocab_size=1024, num_facts=16)
    assert points == frontier(SizeQuery(law="unified", vocab_size=1024, num_facts=16))
    inside = [(p.embed_dim, p.state_dim) for p in points if not p.extrapolated]
    assert inside == [(p.embed_dim, p.state_dim) for p in points if p.embed_dim <= 64 and p.state_dim <= 32]
    assert 0 < len(inside) < len(points)


def test_heads_are_solved_for_dimensions_that_they_can_split():
    fields = {"vocab_size": 512, "num_facts": 16, "num_heads": 6, "head_pattern": "MHA"}
    wide = solve(**fields, state_dim=4)
    assert wide.value % 6 == 0
    law = find_law("trained-sharing-heads")
    reached, missed = law(**fields, embed_dim=[wide.value, wide.value - 6], state_dim=4)
    assert reached >= 0.99 > missed
    points = frontier(**fields, target=0.8)
    assert all(point.embed_dim % 6 == 0 and point.parameters is None for point in points)

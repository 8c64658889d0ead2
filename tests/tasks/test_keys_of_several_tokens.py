"""Tasks whose keys have several tokens, or are given new values."""

from itertools import permutations, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_draw_distribution import follows

from closeness import seeded
from recallscope.specs import TaskSpec, parse_task
from recallscope.tasks.batch import Batch
from recallscope.tasks.correlated_keys import TemplateAR, TemplateMQAR
from recallscope.tasks.drawing import sample_batch
from recallscope.tasks.zoology import zoology_batch
from recallscope.tasks.zoology_tasks import CompositionalMQAR, ForgettingMQAR


@st.composite
def drawn(draw: st.DrawFn) -> tuple[TaskSpec, Batch]:
    kind = draw(st.sampled_from(["template_ar", "template_mqar", "table", "compositional_mqar", "forgetting_mqar"]))
    N_f, spare = draw(st.integers(1, 8)), draw(st.integers(0, 9))
    if kind.startswith("template"):
        m, rho = draw(st.integers(1, 4)), draw(st.sampled_from([0.0, 0.3, 1.0]))
        fields = {"kind": kind, "key_tokens": m, "rho": rho, "num_facts": N_f}
        fields |= {"vocab_size": 2 * (max(m * (N_f + 1), N_f) + 1 + spare)}
    elif kind == "table":
        rows, columns = draw(st.integers(1, 4)), draw(st.integers(2, 4))
        fields = {"kind": "template_mqar", "rows": rows, "columns": columns, "vocab_size": 2 * (rows * columns + 4)}
        fields |= {"num_facts": draw(st.integers(1, rows * columns))}
    else:
        side, updates = draw(st.integers(1, 3)), draw(st.integers(0, N_f))
        grid = {"num_facts": side**2, "vocab_size": 3 * side**2 + 60, "length": 6 * side**2 + 2 * spare}
        again = {"num_facts": N_f, "vocab_size": 100, "num_updates": updates}
        again["length"] = 4 * N_f + 2 * updates + 2 * spare
        fields = {"kind": kind, "power_a": draw(st.sampled_from([1.0, 0.1]))}
        fields |= grid if kind == "compositional_mqar" else again
    task, seed = parse_task(fields), draw(st.integers(0, 2**31 - 1))
    if hasattr(task, "power_a") and draw(st.booleans()):
        return task, zoology_batch(task, 3, seed, filler_seed=0)
    return task, sample_batch(task, 3, seed)


@given(drawn())
def test_a_reader_of_the_context_knows_every_answer(case):
    """Walk the facts m + 1 tokens at a time, remember the last value of every key, look the queries up."""
    task, batch = case
    m = task.key_tokens
    assert batch.tokens.shape == (3, task.sequence_length)
    assert batch.query_positions.shape == batch.answers.shape == (3, task.num_queries)
    for row in range(3):
        tokens, memory = batch.tokens[row].tolist(), {}
        for t in range(0, task.context_length, m + 1):
            memory[tuple(tokens[t : t + m])] = tokens[t + m]
        assert len(memory) == task.num_facts
        positions = batch.query_positions[row].tolist()
        asked = [tuple(tokens[p - m + 1 : p + 1]) for p in positions]
        assert len(set(asked)) == task.num_queries
        assert positions == sorted(positions)
        assert [memory[key] for key in asked] == batch.answers[row].tolist()


@pytest.mark.parametrize(("rho", "m"), [(0.0, 3), (0.4, 2), (1.0, 4)])
def test_keys_share_as_many_places_as_rho_says(rho, m):
    """Two facts share a place if neither has its own token there and both hold the template's."""
    task = TemplateMQAR(vocab_size=512, num_facts=8, key_tokens=m, rho=rho)
    keys = sample_batch(task, 4000, seeded()).keys
    alike = (keys[:, :, None] == keys[:, None]).double().mean(dim=(0, 3))
    off = alike[~torch.eye(8, dtype=torch.bool)]
    torch.testing.assert_close(off, torch.full_like(off, (rho * (1 - 1 / m)) ** 2), atol=0.015, rtol=0)


def test_every_token_is_as_likely_in_every_place():
    """So that no fixed linear map of the tokens can tell the shared ones."""
    task = TemplateMQAR(vocab_size=32, num_facts=2, key_tokens=2, rho=1.0)
    keys = sample_batch(task, 20_000, seeded()).keys
    for fact, place in product(range(2), range(2)):
        assert follows(keys[:, fact, place, None], [(token,) for token in range(1, 16)])


def test_the_cells_of_a_table_are_distinct_and_uniform():
    task = TemplateMQAR(vocab_size=12, num_facts=2, rows=1, columns=3)
    batch = sample_batch(task, 30_000, seeded())
    rows, columns = batch.keys[..., 0], batch.keys[..., 1]
    assert torch.equal(rows[:, 0], rows[:, 1])
    drawn = torch.cat((rows[:, :1], columns), dim=1)
    assert follows(drawn, list(permutations(range(1, 6), 3)))
    assert sorted(batch.values.unique().tolist()) == list(range(6, 12))


def test_ar_asks_any_fact_once():
    task = TemplateAR(vocab_size=64, num_facts=3, key_tokens=2, rho=1.0)
    batch = sample_batch(task, 9000, seeded())
    assert batch.tokens.shape[1] == 3 * 3 + 2
    assert follows((batch.values == batch.answers).long().argmax(dim=1, keepdim=True), [(0,), (1,), (2,)])


def test_levels_have_fewer_facts():
    task = TemplateAR(vocab_size=64, num_facts=6, rho=1.0)
    assert [level.num_facts for level in task.levels()] == [1, 2, 4, 6]
    assert all(level.rho == 1.0 for level in task.levels())


def test_updates_are_drawn_as_zoology_draws_them():
    """One fact of two is updated; the new value is any but the first fact's, whichever is updated."""
    task = ForgettingMQAR(vocab_size=6, num_facts=2, num_updates=1)
    values = sample_batch(task, 30_000, seeded()).all_values.flatten(1)
    pairs = [(a, b, c) for a, b in permutations((3, 4, 5), 2) for c in (3, 4, 5) if c != a]
    assert follows(values, [(a, b, c, b) for a, b, c in pairs] + [(a, b, a, c) for a, b, c in pairs])


@pytest.mark.parametrize(
    ("fields", "way_out"),
    [
        ({"kind": "template_ar", "vocab_size": 33, "num_facts": 2}, "vocab_size=34"),
        ({"kind": "template_ar", "vocab_size": 16, "num_facts": 4, "rho": 1.0}, "vocab_size >= 22"),
        ({"kind": "template_ar", "vocab_size": 32, "num_facts": 4, "rows": 2}, "Give both, or none"),
        ({"kind": "template_ar", "vocab_size": 32, "num_facts": 7, "rows": 2, "columns": 3}, "num_facts <= 6"),
        ({"kind": "template_ar", "vocab_size": 32, "num_facts": 2, "rows": 2, "columns": 3, "rho": 0.5}, "rho=0"),
        ({"kind": "compositional_mqar", "vocab_size": 90, "num_facts": 8}, "4 or 9"),
        ({"kind": "compositional_mqar", "vocab_size": 9, "num_facts": 9}, "vocab_size >= 27"),
        ({"kind": "compositional_mqar", "vocab_size": 90, "num_facts": 9, "length": 30}, "length=54"),
        ({"kind": "forgetting_mqar", "vocab_size": 90, "num_facts": 3}, "num_updates <= 3"),
        ({"kind": "forgetting_mqar", "vocab_size": 90, "num_facts": 4, "length": 20}, "length=24"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_way_out(fields, way_out):
    with pytest.raises(ValueError, match=way_out):
        parse_task(fields)


def test_the_smallest_vocabularies_named_in_errors_work():
    parse_task({"kind": "template_ar", "vocab_size": 22, "num_facts": 4, "rho": 1.0})
    assert CompositionalMQAR(vocab_size=27, num_facts=9).length == 54

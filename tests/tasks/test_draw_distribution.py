"""Every outcome has the chance it should have.

Seeds are fixed, so a test that passes keeps passing; over the choice of seeds, each comparison would cry wolf
once in a million times (P_MIN), however many cells it looks at.
"""

from itertools import permutations, product

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, chisquare

from closeness import seeded
from recallscope.specs import TaskSpec
from recallscope.tasks import drawing
from recallscope.tasks.associative_recall import ARSpec, MQARSpec, RepeatedSpec
from recallscope.tasks.batch import Batch
from recallscope.tasks.drawing import sample_batch

P_MIN = 1e-6


def counts(rows: torch.Tensor, cells: list[tuple[int, ...]]) -> np.ndarray:
    """How often each cell occurs among the rows; any row outside the cells is an error."""
    found, number = rows.unique(dim=0, return_counts=True)
    index = {cell: i for i, cell in enumerate(cells)}
    table = np.zeros(len(cells), dtype=int)
    for row, n in zip(found.tolist(), number.tolist(), strict=True):
        table[index[tuple(row)]] = n
    return table


def follows(rows: torch.Tensor, cells: list[tuple[int, ...]], chances: np.ndarray | None = None) -> bool:
    observed = counts(rows, cells)
    expected = None if chances is None else chances * len(rows)
    assert (len(rows) / len(cells) if expected is None else expected.min()) > 20  # else chi-square is no guide
    return chisquare(observed, expected).pvalue > P_MIN


def slot_of_fact(task: TaskSpec, batch: Batch) -> torch.Tensor:
    """In which slot each fact is asked: batch x N_f."""
    asked = batch.tokens.gather(1, batch.query_positions)
    which = (asked[:, None, :] == batch.keys[:, :, None]).long().argmax(dim=2)
    return (batch.query_positions.gather(1, which) - task.context_length) // 2


def one_by_one(num_slots: int, count: int, power_a: float) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """Ordered picks without replacement, and their chances, by the definition: weights among those left."""
    weights = np.arange(1, num_slots + 1) ** (power_a - 1)
    cells = list(permutations(range(num_slots), count))
    chances = []
    for cell in cells:
        left, chance = weights.sum(), 1.0
        for slot in cell:
            chance *= weights[slot] / left
            left -= weights[slot]
        chances.append(chance)
    return cells, np.array(chances)


@pytest.mark.parametrize(
    ("vocab_size", "num_facts"),
    [(16, 2), (16, 3), (16, 4), (18, 4), (10, 4), (6, 2)],  # few of many, half, all
)
def test_every_ordered_tuple_of_keys_and_of_values_is_equally_likely(vocab_size, num_facts):
    half = vocab_size // 2
    batch = sample_batch(MQARSpec(vocab_size=vocab_size, num_facts=num_facts), 100_000, seeded())
    assert follows(batch.keys, list(permutations(range(1, half), num_facts)))
    assert follows(batch.values, list(permutations(range(half, vocab_size), num_facts)))


def test_drawing_in_parts_changes_nothing_about_the_chances(monkeypatch):
    monkeypatch.setattr(drawing, "TABLE_CELLS", 1000)
    numbers = drawing._redrawn(10_003, 2, 6, seeded(), nonzero=5_000)
    assert follows(numbers[:5_000], list(permutations(range(1, 6), 2)))
    assert follows(numbers[5_000:], list(permutations(range(6), 2)))


def test_permutations_stay_uniform_where_every_other_row_has_a_tie():
    """Three random bits for four numbers: ties in 59 % of rows. Kept, they would favour some orders."""
    order = drawing._permutations(100_000, 4, seeded(), bits=3)
    assert follows(order, list(permutations(range(4))))


def test_more_numbers_than_a_short_integer_counts():
    numbers = drawing._redrawn(2, 2**15 + 1, 2**17, seeded())
    assert (numbers.sort(dim=1).values.diff(dim=1) > 0).all()
    assert numbers.min() >= 0
    assert numbers.max() < 2**17


def test_tokens_are_uniform_at_the_size_of_the_experiments():
    """V=512, L=64, N_f=16: each key and value, at each place of the context."""
    batch = sample_batch(MQARSpec(vocab_size=512, num_facts=16, length=64), 20_000, seeded())
    for column in (0, 7, 15):
        assert follows(batch.keys[:, column, None], [(k,) for k in range(1, 256)])
        assert follows(batch.values[:, column, None], [(v,) for v in range(256, 512)])


def test_keys_values_and_query_order_are_independent():
    """All 2 x 6 x 2 outcomes of the smallest task with a choice of each."""
    task = MQARSpec(vocab_size=6, num_facts=2)
    batch = sample_batch(task, 50_000, seeded())
    rows = torch.cat([batch.keys, batch.values, slot_of_fact(task, batch)], dim=1)
    pieces = product(permutations((1, 2)), permutations((3, 4, 5), 2), permutations((0, 1)))
    assert follows(rows, [k + v + s for k, v, s in pieces])


def test_sequences_of_a_batch_are_independent():
    keys = sample_batch(MQARSpec(vocab_size=20, num_facts=2), 50_000, seeded()).keys[:, 0]
    assert follows(keys.view(-1, 2), list(product(range(1, 10), repeat=2)))


@pytest.mark.parametrize("num_slots", [3, 5, 8])
def test_query_slots_are_uniform(num_slots):
    """No slot to spare, one method of drawing, the other."""
    task = MQARSpec(vocab_size=16, num_facts=3, length=6 + 2 * num_slots)
    batch = sample_batch(task, 50_000, seeded())
    assert follows(slot_of_fact(task, batch), list(permutations(range(num_slots), 3)))


@pytest.mark.parametrize(("power_a", "num_slots"), [(0.01, 5), (0.5, 3), (2.0, 5)])
def test_weighted_slots_follow_numpys_choice(power_a, num_slots):
    task = MQARSpec(vocab_size=16, num_facts=3, length=6 + 2 * num_slots, power_a=power_a)
    cells, chances = one_by_one(num_slots, 3, power_a)
    batch = sample_batch(task, 60_000, seeded())
    assert follows(slot_of_fact(task, batch), cells, chances)

    stream, p = np.random.RandomState(0), np.arange(1, num_slots + 1) ** (power_a - 1)
    theirs = [stream.choice(num_slots, 3, replace=False, p=p / p.sum()) for _ in range(15_000)]
    assert follows(torch.from_numpy(np.stack(theirs)), cells, chances)


@pytest.mark.parametrize("power_a", [1.0, 0.01, 2.0])
def test_ar_asks_for_the_fact_that_mqar_would_ask_first(power_a):
    """Slot 0 of the task at L = 4 N_f."""
    task = ARSpec(vocab_size=16, num_facts=4, power_a=power_a)
    batch = sample_batch(task, 50_000, seeded())
    fact = (batch.tokens[:, -1:] == batch.keys).long().argmax(dim=1, keepdim=True)
    cells, chances = one_by_one(4, 4, power_a)
    first = np.array([sum(c for cell, c in zip(cells, chances, strict=True) if cell[i] == 0) for i in range(4)])
    assert follows(fact, [(i,) for i in range(4)], first)


def test_repeated_keys_get_fresh_values_in_every_block():
    """Two blocks of one fact: all 4 x 4 pairs of values, equal ones included."""
    task = RepeatedSpec(vocab_size=8, num_facts=1, key_repeats=2)
    batch = sample_batch(task, 20_000, seeded())
    assert follows(batch.all_values[:, :, 0], list(product(range(4, 8), repeat=2)))


@pytest.mark.parametrize(("filler", "least"), [("random", 0), ("values", 8)])
def test_filler_is_uniform_over_its_tokens(filler, least):
    task = MQARSpec(vocab_size=16, num_facts=2, length=8, filler=filler)
    batch = sample_batch(task, 20_000, seeded())
    pairs = batch.tokens[:, [5, 7]]  # the two gaps: every slot holds a query
    assert follows(pairs, list(product(range(least, 16), repeat=2)))


def test_filler_repeats_a_key_before_it_is_asked_as_often_as_chance_says():
    """With every slot in use, slot g follows g random tokens: its key is among them with 1 - (1 - 1/V)^g."""
    V, N_f, n = 64, 8, 40_000
    task = MQARSpec(vocab_size=V, num_facts=N_f)
    batch = sample_batch(task, n, seeded())
    asked, filler = batch.tokens[:, 2 * N_f :: 2], batch.tokens[:, 2 * N_f + 1 :: 2]
    assert not (filler[:, :0] == asked[:, :1]).any()
    for g in range(1, N_f):
        seen = int((filler[:, :g] == asked[:, g, None]).any(dim=1).sum())
        assert binomtest(seen, n, 1 - (1 - 1 / V) ** g).pvalue > P_MIN / N_f

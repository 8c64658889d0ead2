"""What every drawn sequence obeys, whatever the spec and the seed.

Paper: Sec. 2 (`par:mqar-definition`), Tab. 1 (`tab:mqar_notation`); repeated keys App. I.2
(`app-subsec:repeated-keys-queries`).
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recallscope.specs import TASKS, TaskSpec
from recallscope.tasks.associative_recall import ARSpec, MQARSpec, RepeatedSpec
from recallscope.tasks.batch import Batch
from recallscope.tasks.drawing import sample_batch
from recallscope.tasks.zoology import zoology_batch


@st.composite
def tasks(draw: st.DrawFn, kinds: tuple[str, ...] = ("ar", "mqar", "repeated")) -> TaskSpec:
    kind = draw(st.sampled_from(kinds))
    N_f = draw(st.integers(1, 12))
    N_k = draw(st.integers(1, 4)) if kind == "repeated" else 1
    spare_slots = draw(st.integers(0, 20))
    return TASKS.find(kind)(
        num_facts=N_f,
        vocab_size=2 * (N_f + 1 + draw(st.integers(0, 60))),
        length=2 * N_f + 1 if kind == "ar" else 2 * N_f * (N_k + 1) + 2 * spare_slots,
        power_a=draw(st.sampled_from([1.0, 0.01, 0.5, 2.0, 30.0])),
        filler=draw(st.sampled_from(["random", "zero", "values"])),
        key_repeats=N_k,
    )


@st.composite
def draws(draw: st.DrawFn, kinds: tuple[str, ...] = ("ar", "mqar", "repeated")) -> tuple[TaskSpec, Batch]:
    task = draw(tasks(kinds))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31 - 1)))
    return task, sample_batch(task, draw(st.integers(1, 6)), generator)


@st.composite
def zoology_draws(draw: st.DrawFn) -> tuple[TaskSpec, Batch]:
    task = draw(tasks(("ar", "mqar")).filter(lambda t: t.vocab_size > max(t.length, 4 * t.num_facts)))
    task = task.model_copy(update={"filler": draw(st.sampled_from(["random", "zero"]))})
    return task, zoology_batch(task, draw(st.integers(1, 4)), draw(st.integers(0, 2**31 - 1)), filler_seed=1)


anyhow = st.one_of(draws(), zoology_draws())


def all_distinct(rows: torch.Tensor) -> bool:
    return bool((rows.sort(dim=-1).values.diff(dim=-1) > 0).all())


@given(anyhow)
def test_the_context_states_distinct_keys_and_values_fact_by_fact_block_by_block(drawn):
    """Keys are of the first half, without token 0; values of the second, distinct within a block."""
    task, batch = drawn
    n, half = len(batch), task.vocab_size // 2
    assert batch.tokens.shape == batch.targets.shape == (n, task.length)
    assert batch.query_positions.shape == batch.answers.shape == (n, task.num_queries)
    assert batch.keys.shape == batch.values.shape == (n, task.num_facts)
    assert batch.all_values.shape == (n, task.key_repeats, task.num_facts)
    fields = (batch.tokens, batch.query_positions, batch.answers, batch.keys, batch.all_values, batch.targets)
    assert all(field.dtype == torch.int64 and field.is_contiguous() for field in fields)
    assert batch.keys.min() >= 1
    assert batch.keys.max() < half <= batch.all_values.min()
    assert batch.all_values.max() < task.vocab_size
    assert all_distinct(batch.keys)
    assert all_distinct(batch.all_values)
    stated = batch.tokens[:, : task.context_length].reshape(n, task.key_repeats, task.num_facts, 2)
    assert torch.equal(stated[..., 0], batch.keys[:, None].expand_as(stated[..., 0]))
    assert torch.equal(stated[..., 1], batch.all_values)


@given(anyhow)
def test_queries_stand_at_even_offsets_after_the_context_in_ascending_order(drawn):
    """Targets hold the answers there and nothing elsewhere; what is between is filler of the right kind."""
    task, batch = drawn
    offsets = batch.query_positions - task.context_length
    assert offsets.min() >= 0
    assert batch.query_positions.max() < task.length
    assert not (offsets % 2).any()
    assert all_distinct(offsets)
    assert torch.equal(batch.query_positions, batch.query_positions.sort(dim=1).values)
    assert torch.equal(batch.targets.gather(1, batch.query_positions), batch.answers)
    assert int((batch.targets != -100).sum()) == batch.answers.numel()
    gaps = torch.ones_like(batch.tokens, dtype=torch.bool).scatter_(1, batch.query_positions, False)
    gaps[:, : task.context_length] = False
    filler, least, most = batch.tokens[gaps], {"values": task.vocab_size // 2}, {"zero": 0}
    assert (filler >= least.get(task.filler, 0)).all()
    assert (filler <= most.get(task.filler, task.vocab_size - 1)).all()


@given(anyhow)
def test_the_answer_to_a_query_is_the_last_value_its_key_was_given(drawn):
    """Row by row, as a reader would: walk the context, remember, look up."""
    task, batch = drawn
    for row in range(len(batch)):
        tokens = batch.tokens[row].tolist()
        memory: dict[int, int] = {}
        for t in range(0, task.context_length, 2):
            memory[tokens[t]] = tokens[t + 1]
        for position, answer in zip(batch.query_positions[row].tolist(), batch.answers[row].tolist(), strict=True):
            assert memory[tokens[position]] == answer


@given(st.one_of(draws(("mqar", "repeated")), zoology_draws().filter(lambda drawn: drawn[0].kind == "mqar")))
def test_every_fact_is_asked_exactly_once(drawn):
    _, batch = drawn
    asked = batch.tokens.gather(1, batch.query_positions)
    assert torch.equal(asked.sort(dim=1).values, batch.keys.sort(dim=1).values)


@given(draws(("ar",)))
def test_ar_asks_one_question_right_after_the_context(drawn):
    task, batch = drawn
    assert batch.tokens.shape[1] == 2 * task.num_facts + 1
    assert (batch.query_positions == 2 * task.num_facts).all()


@pytest.mark.parametrize(
    ("task", "batch_size"),
    [
        (MQARSpec(vocab_size=50_000, num_facts=1_000), 5),
        (MQARSpec(vocab_size=4_096, num_facts=2_047), 5),  # every key there is
        (MQARSpec(vocab_size=4, num_facts=1), 3),  # one key, one slot
        (ARSpec(vocab_size=4, num_facts=1), 3),
        (RepeatedSpec(vocab_size=512, num_facts=10, length=128, key_repeats=5), 32),
    ],
)
def test_large_and_smallest_tasks_can_be_drawn(task, batch_size):
    batch = sample_batch(task, batch_size, torch.Generator().manual_seed(0))
    assert all_distinct(batch.keys)
    assert all_distinct(batch.all_values)
    asked = batch.tokens.gather(1, batch.query_positions)
    facts = (asked[:, :, None] == batch.keys[:, None, :]).long().argmax(dim=2)
    assert torch.equal(batch.answers, batch.values.gather(1, facts))


def test_extreme_weights_do_not_overflow():
    """power_a = 1e9 puts all weight on the latest slot, then on the one before it."""
    task = MQARSpec(vocab_size=64, num_facts=2, length=40, power_a=1e9)
    batch = sample_batch(task, 100, torch.Generator().manual_seed(0))
    assert torch.equal(batch.query_positions, torch.tensor([[36, 38]]).expand(100, 2))
    assert torch.equal(batch.answers, batch.values.flip(1))  # fact 0 is placed first: in the last slot


def test_an_empty_batch_is_refused_with_the_way_out():
    with pytest.raises(ValueError, match="batch_size >= 1"):
        sample_batch(MQARSpec(vocab_size=8, num_facts=1), 0, torch.Generator())

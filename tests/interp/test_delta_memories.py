"""Inside the delta family: weights of every token, gates by kind of pair, and facts stored, replaced and taken back."""

import pytest
import torch
from subjects import SMALL

from closeness import assert_near, seeded
from recallscope.architectures.capabilities import HasAttention, HasRates, RevisesFacts, WritesFacts
from recallscope.architectures.matrix_memory import MatrixMemory
from recallscope.architectures.model import build_model
from recallscope.circuits.gated import delta_circuit, gated_circuit, least_squares_circuit
from recallscope.interp.inspection import inspect_model
from recallscope.interp.interventions import overwrite_facts
from recallscope.interp.memory import HashMemory
from recallscope.interp.rates import rates_by_pair
from recallscope.specs import ARCHITECTURES
from recallscope.tasks.drawing import sample_batch
from recallscope.theory.laws.ageing import delta_rate

V = 64
FAMILY = [name for name in ARCHITECTURES.names() if issubclass(ARCHITECTURES.find(name), MatrixMemory)]
NOT_EDITED = {"attention", "mlstm", "window_attention", "hybrid", "delta_product", "mamba3", "preconditioned_delta_net"}
EDITED = [name for name in FAMILY if name not in NOT_EDITED]


def drawn(kind, **fields):
    spec = ARCHITECTURES.find(kind)(embed_dim=8, state_dim=4, num_heads=2, **fields)
    return build_model(spec, V, seeded(), dtype=torch.float64)


def tokens(count=3, length=10, seed=1):
    return torch.randint(V, (count, length), generator=seeded(seed))


@pytest.mark.parametrize("kind", [kind for kind in FAMILY if kind != "delta_product"])  # several values per token
def test_attention_is_the_jacobian_with_respect_to_the_values(kind):
    model, ids = drawn(kind), tokens(2, 7)
    layer = model.layers[-1]
    drive = layer.drive(layer.project_in(model.inputs(ids)[-1]))
    J = torch.autograd.functional.jacobian(lambda v: layer.recall(drive._replace(v=v), None).sum(dim=0), drive.v)
    maps = model.attention(ids).maps  # batch M 1 tau t
    P = drive.v.shape[-1]
    for p in range(P):  # (t, M, p) by (batch, tau, M, p)
        own = torch.diagonal(J[:, :, p, :, :, :, p], dim1=1, dim2=4)  # t batch tau M
        assert_near(own.permute(1, 3, 2, 0), maps[:, :, 0])
    assert float(J[:, 0, :, :, :, 1].abs().max()) == 0  # heads do not meet


@pytest.mark.parametrize("kind", EDITED)
@torch.no_grad()
def test_an_edit_is_what_the_model_would_have_done(kind):
    """Nothing added changes nothing; a state put in place of one is read on as if its tokens had been; and a fact
    written by the rule is the fact read."""
    model, ids = drawn(kind), tokens()
    positions = torch.tensor([[4, 9, 6]] * 3)
    (state,) = model.state_after(ids[:, :4])
    nothing = model.answer_edited(ids, positions, (torch.zeros_like(state),), after=3)
    assert_near(nothing, model.answer(ids, positions))
    rest = ids[:, 3:]  # a model that finds this state after having read token 3 alone
    resumed = model.answer_edited(rest, positions - 3, (state - model.state_after(rest[:, :1])[0],), after=0)
    assert_near(resumed, nothing)
    told = torch.stack((ids[:, 0], torch.tensor([40, 50, 60])), dim=1)
    (first,), (both,) = model.state_after(told[:, :1]), model.state_after(told)
    assert_near(model.write_facts(first, *told.T), both)


@pytest.mark.parametrize("kind", EDITED)
@torch.no_grad()
def test_what_was_written_can_be_taken_back(kind):
    """The state comes back to rounding, as nothing drawn at random erases a key entirely."""
    model, ids = drawn(kind), tokens()
    (state,) = model.state_after(ids)
    keys, values = torch.tensor([3, 7, 9]), torch.tensor([40, 50, 60])
    after = model.write_facts(state, keys, values)
    before, lost = model.take_back(after, keys, values)
    assert_near(before, state)
    assert int(lost.sum()) == 0
    assert float((after - state).norm()) > 1e-6


@torch.no_grad()
def test_a_rate_of_one_loses_what_the_key_held_and_nothing_else():
    model = delta_circuit(V, 16, 8, seeded(), write_rate=1.0).double()
    memory = HashMemory(model)
    memory.store(3, 40)
    empty = memory.state.clone()
    memory.store(7, 50)
    under = model.pair_writes(torch.tensor([7]), torch.tensor([50]))[0][0, 0].T @ model.E[:, 50]
    under = under / under.norm()
    assert memory.forget(7)[:2] == (7, 50)
    assert memory.lost == 1
    assert_near(memory.state[0], empty[0] - torch.outer(empty[0] @ under, under))
    slow = HashMemory(delta_circuit(V, 16, 8, seeded(), write_rate=0.2).double())
    slow.store(3, 40)
    held = slow.state.clone()
    slow.store(7, 50)
    slow.forget(7)
    assert slow.lost == 0
    assert_near(slow.state, held)


@pytest.mark.parametrize(
    "build",
    [lambda: delta_circuit(V, 24, 12, seeded(), write_rate=0.5), lambda: least_squares_circuit(V, 24, 12, seeded())],
    ids=["delta", "least squares"],
)
def test_they_are_memories(build):
    memory = HashMemory(build())
    for key, value in ((3, 40), (7, 63), (11, 33)):
        memory.store(key, value)
    assert [memory.recall(key).value for key in (3, 7, 11)] == [40, 63, 33]
    assert memory.overwrite(11, 45)[:2] == (11, 33)
    assert [memory.recall(key).value for key in (3, 7, 11)] == [40, 63, 45]
    batch = sample_batch(SMALL, 10, seeded(1))
    right = 0
    for row in range(10):
        memory.read(batch.tokens[row, :8])
        right += sum(memory.recall(int(k)).value == v for k, v in zip(batch.keys[row], batch.values[row], strict=True))
    assert right >= 38


def test_a_patched_state_gives_the_new_answer():
    """The codes are the weights', so a write is v' k'ᵀ; least squares also sums k kᵀ, which no value code explains."""
    energies = []
    for model in (delta_circuit(V, 24, 12, seeded(), write_rate=0.3), least_squares_circuit(V, 24, 12, seeded())):
        scores = overwrite_facts(model, sample_batch(SMALL, 50, seeded(1)), seeded(2))
        assert scores.success == scores.own_write == 1
        energies.append(scores.factored_energy)
    assert energies[0] == pytest.approx(1, abs=1e-4)
    assert energies[1] < 0.9


def test_gates_by_kind_of_pair():
    batch = sample_batch(SMALL, 20, seeded(1))
    rates = rates_by_pair(delta_circuit(V, 16, 8, seeded(), write_rate=0.3), batch)
    assert rates["key, value"].erased == pytest.approx(0.3, abs=1e-5)
    assert rates["key, value"].written == pytest.approx(0.3**0.5, abs=1e-5)
    for kind in ("value, key", "key, key"):
        assert rates[kind].written == rates[kind].erased == 0
        assert rates[kind].kept == 1
    assert rates["value, value"].written != rates["value, value"].written  # a query is a key: no such pair
    hebb = rates_by_pair(gated_circuit(V, 16, 8, seeded()), batch)["key, value"]
    assert (hebb.erased, hebb.kept) == (0, 1)
    assert hebb.written == pytest.approx(1, abs=1e-5)


def test_what_they_lack_is_said():
    softmax, mlstm, deep = drawn("attention"), drawn("mlstm"), drawn("delta_net", num_layers=2)
    assert "not a matrix of fixed size" in softmax.why_not(HasRates)
    assert "several values" in drawn("delta_product").why_not(HasAttention)
    assert {kind for kind in FAMILY if drawn(kind).why_not(RevisesFacts)} == NOT_EDITED
    for protocol in (WritesFacts, RevisesFacts):
        assert "largest gate so far" in mlstm.why_not(protocol)
        assert "num_layers=1" in deep.why_not(protocol)
    assert mlstm.capability(HasRates) is not None


def test_inspection_has_the_rates():
    found = inspect_model(delta_circuit(V, 16, 8, seeded(), write_rate=0.3), SMALL, seeded(1), num_sequences=20)
    assert found.rates.pairs["key, value"].erased == pytest.approx(0.3, abs=1e-5)
    assert found.rates.best_rate == delta_rate(vocab_size=V, num_facts=SMALL.num_facts, embed_dim=16, state_dim=8)
    assert found.overwrite.success > 0.9
    assert found.attribution_hit_rate > 0.9

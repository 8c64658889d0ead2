"""Every recurrence, token by token, is the model itself; and a state that is rounded on the way is the plain loop."""

import pytest
import torch

from closeness import assert_near, moved_off
from recallscope.architectures.capabilities import HasState, StepsState
from recallscope.architectures.model import MissingCapabilityError, RecallModel, build_model
from recallscope.architectures.stored_state import StoredState
from recallscope.ops.linear_scan import at_positions
from recallscope.ops.state_rounding import round_state
from recallscope.specs import ARCHITECTURES
from recallscope.state_precision import StatePrecision

V, L, BATCH = 12, 9, 3
KEEP_ALL = ("attention", "window_attention", "hybrid")
VARIANTS = {
    **{kind: {} for kind in ARCHITECTURES.names() if kind not in KEEP_ALL},
    "two layers": {"kind": "linear_mamba", "num_layers": 2},
    "MQA": {"kind": "multihead", "num_heads": 2, "head_pattern": "MQA"},
    "mesa_net, fading": {"kind": "mesa_net", "forget": True},
    "mlstm, no normaliser": {"kind": "mlstm", "normaliser": False},
    "hybrid": {"kind": "hybrid", "layers": "gla kda mamba3,turning=0.5"},
    "rwkv7, bonus": {"kind": "rwkv7", "bonus": True},
    "taylor, normalised": {"kind": "linear_attention", "feature_map": "taylor", "normaliser": True},
    "Mamba without gate": {"kind": "mamba", "gate": False, "norm": "none", "skip": False, "transition": "identity"},
    "Mamba-2, two layers": {"kind": "mamba2", "num_layers": 2, "num_heads": 2},
}
EVERY = pytest.mark.parametrize("name", VARIANTS)


def build(name: str) -> RecallModel:
    fields = dict(VARIANTS[name])
    cls = ARCHITECTURES.find(str(fields.pop("kind", name)))
    needed = {"num_heads": 2, "head_pattern": "MHA"}
    heads = {field: value for field, value in needed.items() if field in cls.model_fields and field not in fields}
    g = torch.Generator().manual_seed(0)
    spec = cls(**{"embed_dim": 6, "state_dim": 3, "conv_width": 2, **heads, **fields})
    model = build_model(spec, V, g, dtype=torch.float64)
    moved_off(model, g, 0.2)
    return model


def sequences() -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(1)
    return torch.randint(V, (BATCH, L), generator=g), torch.randint(3, L, (BATCH, 4), generator=g)


@EVERY
def test_token_by_token_is_the_model_and_its_states_are_those_it_shows(name):
    model, (tokens, positions), last = build(name), sequences(), {}

    def keep(step):
        last[step.layer] = step.state
        return step.state, step.state

    stepped = model.require(StepsState).answer_stored(tokens, positions, keep)
    assert_near(stepped, at_positions(model(tokens), positions), name)
    for layer, state in enumerate(model.require(HasState).state_after(tokens)):
        assert_near(last[layer].expand_as(state), state, name)


@EVERY
def test_the_kept_power_is_that_of_the_recurrence(name):
    """A state of independent random numbers keeps this share of its power, on average over 4000 of them."""
    model, (tokens, _) = build(name), sequences()
    layer, x = model.layers[0], model.embed(tokens[:1])
    steps = layer.steps(x)
    g = torch.Generator().manual_seed(2)
    random = torch.randn(4000, *steps.empty.shape[1:], generator=g, dtype=torch.float64)
    for t in (1, 5):
        wide = steps.after(random, t) - steps.after(torch.zeros_like(random), t)
        share = wide.square().mean(dim=(0, 2, 3)) / random.square().mean(dim=(0, 2, 3))
        torch.testing.assert_close(share, steps.kept(t)[0].expand_as(share), rtol=0.06, atol=1e-9)


def test_delta_net_with_rounding_is_the_loop_written_down():
    model, (tokens, positions) = build("delta_net"), sequences()
    precision = StatePrecision.of("int4", "row")
    layer, g = model.layers[0], torch.Generator()
    x = model.embed(tokens)
    drive = layer.drive(layer.project_in(x))
    beta = torch.sigmoid(drive.gates["beta"])
    S, o = torch.zeros(BATCH, 2, 3, 3, dtype=torch.float64), []
    for t in range(L):
        q, k, v, b = drive.q[:, t], drive.k[:, t], drive.v[:, t], beta[:, t]
        error = v - torch.einsum("bmpn,bmn->bmp", S, k)
        S = round_state(S + torch.einsum("bmp,bmn->bmpn", b * error, k), precision, g)
        o.append(torch.einsum("bmpn,bmn->bmp", S, q))
    y = layer.project_out(torch.stack(o, dim=1), x)
    expected = at_positions(model.unembed(model.finish(y)), positions)
    assert_near(StoredState(model, precision).answer(tokens, positions), expected)


def recorded(precision: StatePrecision) -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """What a linear Mamba's state was before it was stored, what went on, and what was read, token by token."""
    model, (tokens, positions), seen = build("linear_mamba"), sequences(), []
    stored = StoredState(model, precision)
    whole = model.answer_stored

    def spied(tokens, positions, store):
        def keep(step):
            on, shown = store(step)
            seen.append((step.state, on, shown))
            return on, shown

        return whole(tokens, positions, keep)

    model.answer_stored = spied
    stored.answer(tokens, positions)
    return seen


def test_every_c_tokens_and_once():
    for precision, wanted in (
        (StatePrecision.of("int3"), [True] * L),
        (StatePrecision.of("int3", every=4), [t in (3, 7) for t in range(L)]),
    ):
        assert [not torch.equal(before, on) for before, on, _ in recorded(precision)] == wanted
    first = sequences()[1].min(dim=1).values
    for t, (before, on, _) in enumerate(recorded(StatePrecision.of("int3", every="once"))):
        changed = (before != on).flatten(1).any(dim=1)
        assert changed.tolist() == (first - 1 == t).tolist()


def test_error_feedback_carries_all_and_shows_what_is_stored():
    seen = recorded(StatePrecision.of("int3", rounding="error-feedback"))
    plain = recorded(StatePrecision.of("int16", every=LAST))
    for (before, on, shown), (exact, _, _) in zip(seen, plain, strict=True):
        torch.testing.assert_close(before, exact, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(on, before, rtol=1e-12, atol=1e-12)
        assert torch.equal(shown, round_state(before, StatePrecision.of("int3"), torch.Generator()))


LAST = 10**6  # tokens, beyond any sequence here: never rounded


def test_stochastic_rounding_follows_its_seed():
    model, (tokens, positions) = build("gated_delta_net"), sequences()
    precision = StatePrecision.of("int3", rounding="stochastic")
    one, two, other = (StoredState(model, precision, seed=seed).answer(tokens, positions) for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_attention_has_no_state_to_store():
    model = build_model(ARCHITECTURES.find("attention")(embed_dim=6, state_dim=3), V, torch.Generator().manual_seed(0))
    with pytest.raises(MissingCapabilityError, match="not a matrix of fixed size"):
        StoredState(model, StatePrecision.of("int8"))

"""Full Mamba-2: what its weights are called and how they start, and what the four head patterns share."""

import pytest
import torch
from torch.nn.functional import softplus

from closeness import assert_near
from recallscope.architectures.mamba import Mamba2Spec
from recallscope.architectures.mamba2_model import Mamba2
from recallscope.architectures.model import build_model
from recallscope.specs import HeadPattern

PATTERNS = pytest.mark.parametrize("pattern", ["MHA", "MQA", "MKA", "MVA"])
D, N, M, P, V = 12, 4, 3, 8, 20


def build(pattern: HeadPattern = "MVA", **fields: object) -> Mamba2:
    spec = Mamba2Spec(embed_dim=D, state_dim=N, num_heads=M, head_pattern=pattern, **fields)
    return build_model(spec, V, torch.Generator().manual_seed(0), dtype=torch.float64)


def draw_tokens(batch: int = 2, L: int = 9) -> torch.Tensor:
    return torch.randint(0, V, (batch, L), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("pattern", "keys", "queries"), [("MHA", 3, 3), ("MQA", 1, 3), ("MKA", 3, 1), ("MVA", 1, 1)])
def test_weights_have_mamba_ssms_names_and_the_patterns_shapes(pattern: HeadPattern, keys: int, queries: int) -> None:
    shapes = {n: tuple(w.shape) for n, w in build(pattern, conv_width=4).layers[0].mixer.named_parameters()}
    conv_rows = 24 + (keys + queries) * N
    expected = {
        "in_proj.weight": (24 + conv_rows + M, D),
        "conv1d.weight": (conv_rows, 1, 4),
        "conv1d.bias": (conv_rows,),
        "dt_bias": (M,),
        "A_log": (M,),
        "D": (M,),
        "norm.weight": (24,),
        "out_proj.weight": (D, 24),
    }
    if pattern in ("MQA", "MKA"):
        expected["W_x"] = (P, M)
    assert shapes == expected


def test_parts_that_are_off_leave_no_weights_behind() -> None:
    names = {n for n, _ in build(skip=False, conv_bias=False, norm="none").named_parameters()}
    assert not {n for n in names if n.endswith((".D", "conv1d.bias", "layers.0.norm.weight", "norm_f.weight"))}


def test_the_scan_starts_as_in_mamba_ssm() -> None:
    """-A between 1 and 16, Δ at zero input between .001 and .1, skip and norms 1."""
    spec = Mamba2Spec(embed_dim=200, state_dim=N, num_heads=400)
    mixer = build_model(spec, V, torch.Generator().manual_seed(0)).layers[0].mixer
    rates, delta = mixer.A_log.exp(), softplus(mixer.dt_bias)
    assert 1.0 <= rates.min() < 1.5
    assert 15.0 < rates.max() <= 16.0
    assert 0.001 * 0.999 <= delta.min() < 0.0012
    assert 0.08 < delta.max() <= 0.1 * 1.001
    assert (mixer.D == 1).all()
    assert (mixer.norm.weight == 1).all()


def test_weight_decay_leaves_the_transition_alone() -> None:
    assert build(num_layers=2).undecayed() == {
        f"layers.{i}.mixer.{name}" for i in (0, 1) for name in ("A_log", "D", "dt_bias")
    }


@PATTERNS
@torch.no_grad()
def test_a_pattern_is_mha_with_equal_heads(pattern: HeadPattern) -> None:
    """What heads share, each may have to itself: values, keys and queries repeated for every head."""
    shared, apart = build(pattern), build("MHA")
    ours, theirs = shared.layers[0].mixer, apart.layers[0].mixer
    for weight, given in zip((theirs.A_log, theirs.D), (ours.A_log, ours.D), strict=True):
        weight.copy_(given)
    u = shared.layers[0].norm(shared.embed(draw_tokens()))
    drive = ours.drive(ours.project_in(u))
    wide = drive._replace(
        x_heads=drive.x_heads.expand(-1, -1, M, -1), B=drive.B.expand(-1, -1, M, -1), C=drive.C.expand(-1, -1, M, -1)
    )
    assert_near(ours.scan(drive), theirs.scan(wide))
    assert_near(ours.states(drive), theirs.states(wide))


@PATTERNS
@torch.no_grad()
def test_a_trace_shows_how_the_answer_came_about(pattern: HeadPattern) -> None:
    """ŷ of each head is its state read with C, plus the skip; the stack of heads, gated and normalised, goes out."""
    model, tokens = build(pattern), draw_tokens()
    layer, trace = model.layers[0], model.trace(tokens, states=True).layers[0]
    assert trace.delta.shape == trace.x_hat.shape
    read = torch.einsum("blmpn,blmn->blmp", trace.h, trace.C.expand(-1, -1, M, -1))
    assert_near(trace.y_heads, read + layer.mixer.D[:, None] * trace.x_heads)
    assert_near(trace.y_hat, trace.y_heads.flatten(-2))
    assert_near(trace.y, trace.x + layer.mixer.project_out(trace.y_hat, trace.gate))


@torch.no_grad()
def test_the_future_does_not_reach_the_past() -> None:
    model, tokens = build("MQA", num_layers=2, conv_width=4), draw_tokens(1, 12)
    changed = tokens.clone()
    changed[0, 7:] = (changed[0, 7:] + 1) % V
    assert_near(model(tokens)[0, :7], model(changed)[0, :7])


def test_heads_must_divide_the_channels() -> None:
    with pytest.raises(ValueError, match=r"num_heads=5 does not divide the 24 channels.*Use num_heads=1"):
        Mamba2Spec(embed_dim=12, state_dim=4, num_heads=5)

"""Names, shapes, start and switches of full Mamba (Eq. 1-3, Tab. 8)."""

import math

import pytest
import torch
from torch.nn.functional import softplus

from closeness import assert_near
from recallscope.architectures.mamba import MambaSpec
from recallscope.architectures.mamba_model import Mamba
from recallscope.architectures.model import build_model


def build(**fields) -> Mamba:
    spec = MambaSpec(**{"embed_dim": 40, "state_dim": 4, **fields})
    return build_model(spec, 12, torch.Generator().manual_seed(0))


def shapes(model: Mamba) -> dict[str, tuple[int, ...]]:
    return {name: tuple(p.shape) for name, p in model.layers[0].mixer.named_parameters()}


BASE = {"norm": "none", "skip": False, "conv_width": 4}


def test_the_mixer_has_mamba_ssms_names_and_shapes() -> None:
    """D = 40: 80 channels, rank ceil(40 / 16) = 3."""
    assert shapes(build(conv_width=4)) == {
        "in_proj.weight": (160, 40),
        "conv1d.weight": (80, 1, 4),
        "conv1d.bias": (80,),
        "x_proj.weight": (3 + 2 * 4, 80),
        "dt_proj.weight": (80, 3),
        "dt_proj.bias": (80,),
        "A_log": (80, 4),
        "D": (80,),
        "out_proj.weight": (40, 80),
    }


def test_the_rest_has_our_names() -> None:
    outside = {name for name, _ in build(num_layers=2).named_parameters() if ".mixer." not in name}
    assert outside == {"E", "layers.0.norm.weight", "layers.1.norm.weight", "norm_f.weight"}


@pytest.mark.parametrize(
    ("ablation", "fields", "expected"),
    [
        ("Base", {"delta_rank": "full"}, {"x_proj.weight": (8, 80), "dt_proj.weight": (80, 80), "A_log": (80, 4)}),
        ("A", {"transition": "identity"}, {"in_proj.weight": (160, 40), "x_proj.weight": (8, 80)}),
        ("B", {"transition": "identity", "gate": False}, {"in_proj.weight": (80, 40)}),
        ("D", {"transition": "identity", "gate": False, "activation": "none", "conv_width": 2}, {}),
        ("E", {"transition": "identity", "gate": False, "activation": "none", "conv_width": 1}, {}),
    ],
)
def test_a_part_that_is_off_leaves_no_weights_behind(ablation, fields, expected) -> None:
    found = shapes(build(**{**BASE, **fields}))
    assert found.items() >= expected.items()
    assert "D" not in found
    assert found["conv1d.weight"] == (80, 1, fields.get("conv_width", 4))
    assert ("A_log" in found) == ("dt_proj.bias" in found) == (ablation == "Base")


def test_the_convolution_can_go_without_bias() -> None:
    assert "conv1d.bias" not in shapes(build(conv_bias=False))


def test_the_scan_starts_as_in_mamba_ssm() -> None:
    """A = -(1..N) on every channel, skip 1, and Δ at zero input between .001 and .1."""
    mixer = build().layers[0].mixer
    assert_near(-mixer.A_log.exp(), -torch.arange(1.0, 5.0).expand(80, 4))
    assert (mixer.D == 1).all()
    delta = softplus(mixer.dt_proj.bias)
    assert 0.001 * 0.999 <= delta.min() < 0.002
    assert 0.05 < delta.max() <= 0.1 * 1.001
    assert mixer.dt_proj.weight.abs().max() <= 3**-0.5


def test_a_full_rank_delta_starts_as_a_plain_linear() -> None:
    """Bias U(±1/√D_in), so Δ at zero input is near log 2."""
    dt_proj = build(**BASE, delta_rank="full").layers[0].mixer.dt_proj
    assert dt_proj.bias.abs().max() <= 80**-0.5
    assert (softplus(dt_proj.bias) - math.log(2)).abs().max() < 0.06


def test_the_last_projection_shrinks_with_depth() -> None:
    """Four layers: half the weights, from the same draw."""
    shallow, deep = (build(num_layers=n).layers[0].mixer.out_proj.weight for n in (1, 4))
    assert_near(deep, shallow / 2)


def test_weight_decay_leaves_the_transition_and_the_skip_alone() -> None:
    assert build(num_layers=2).undecayed() == {f"layers.{i}.mixer.{name}" for i in (0, 1) for name in ("A_log", "D")}
    assert build(**BASE, transition="identity").undecayed() == frozenset()


@torch.no_grad()
def test_norms_make_the_scale_of_the_embedding_immaterial() -> None:
    """Without residual the layer reads only norm(E x); logits then grow with E once, through the head."""
    model = build(residual=False)
    tokens = torch.randint(0, 12, (2, 9), generator=torch.Generator().manual_seed(1))
    before = model(tokens)
    model.E *= 100
    # the norm adds 1e-5 to a mean square of about 1, and to one of 1e4: that is the difference, more than rounding
    assert (model(tokens) - before * 100).abs().max() <= 1e-4 * (before * 100).abs().max()


@torch.no_grad()
def test_without_convolution_and_residual_the_model_cannot_tell_the_order_of_the_past() -> None:
    """Ablation E: with Ā = I and one tap, the state is a bag of tokens."""
    model = build(**{**BASE, "conv_width": 1}, transition="identity", gate=False, activation="none")
    past = torch.tensor([3, 7, 1, 7, 5])
    shuffled = past[torch.tensor([4, 1, 0, 2, 3])]
    query = torch.tensor([3])
    one, other = (model(torch.cat([p, query])[None])[0, -1] for p in (past, shuffled))
    assert_near(one, other)


def test_without_decay_the_state_is_the_sum_of_its_writes() -> None:
    """transition="write": A-bar = I and no A_log; what is written is Delta x̂ Bᵀ."""
    model = build(transition="write")
    assert {"A_log"} == shapes(build()).keys() - shapes(model).keys()
    layer = model.trace(torch.tensor([[3, 7, 2, 9, 1]]), states=True).layers[0]
    writes = (layer.delta * layer.x_hat)[..., None] * layer.B[:, :, None]
    assert_near(layer.h, writes.cumsum(dim=1))

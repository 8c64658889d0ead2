"""Full Mamba with every part switched off is the simplified model of Alg. 1 and 3, by weights and traces."""

import pytest
import torch

from closeness import assert_near
from recallscope.architectures.linear_mamba_model import LinearMamba
from recallscope.architectures.mamba import LinearMambaSpec, MambaSpec
from recallscope.architectures.mamba_model import Mamba
from recallscope.architectures.model import RecallModel, build_model
from recallscope.ops.linear_scan import at_positions

V = 10
OFF = {"norm": "none", "gate": False, "activation": "none", "transition": "identity", "skip": False, "conv_bias": False}


def same_weights(full: Mamba, linear: LinearMamba) -> None:
    N = full.spec.state_dim
    linear.E.copy_(full.E)
    for source, target in zip(full.layers, linear.layers, strict=True):
        mixer = source.mixer
        target.P_in.copy_(mixer.in_proj.weight)
        target.W_conv.copy_(mixer.conv1d.weight[:, 0])
        target.S_B.copy_(mixer.x_proj.weight[:N])
        target.S_C.copy_(mixer.x_proj.weight[N:])
        target.P_out.copy_(mixer.out_proj.weight)


@pytest.mark.parametrize("conv_width", [1, 2, 4])
@pytest.mark.parametrize(("layers", "residual"), [(1, False), (1, True), (2, False), (3, True)])
@torch.no_grad()
def test_linear_is_full_with_parts_off(layers: int, residual: bool, conv_width: int) -> None:
    size = {"embed_dim": 5, "state_dim": 3, "num_layers": layers, "residual": residual, "conv_width": conv_width}
    full = build_model(MambaSpec(**size, **OFF), V, torch.Generator().manual_seed(0), dtype=torch.float64)
    linear = LinearMambaSpec(**size).blank_model(V).double()
    same_weights(full, linear)
    tokens = torch.randint(0, V, (2, 8), generator=torch.Generator().manual_seed(1))
    assert_near(full(tokens), linear(tokens))
    assert sum(p.numel() for p in full.parameters()) == sum(p.numel() for p in linear.parameters())
    ours, theirs = (model.trace(tokens, states=True) for model in (linear, full))
    for a, b in zip(ours.layers, theirs.layers, strict=True):
        assert b.gate is b.delta is None
        for name in ("x", "x_hat", "B", "C", "y_hat", "y", "h"):
            assert_near(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize(
    "spec",
    [
        LinearMambaSpec(embed_dim=5, state_dim=3, num_layers=2),
        MambaSpec(embed_dim=5, state_dim=3),
        MambaSpec(embed_dim=5, state_dim=3, transition="write"),
        MambaSpec(embed_dim=5, state_dim=3, transition="identity"),
    ],
    ids=["linear", "full", "full, no decay", "full, A-bar = I"],
)
@torch.no_grad()
def test_a_trace_holds_together(spec: LinearMambaSpec | MambaSpec) -> None:
    """ŷ is h read by C (plus the skip), each layer reads the one below, the logits are those of `forward`."""
    model: RecallModel = build_model(spec, V, torch.Generator().manual_seed(0), dtype=torch.float64)
    tokens = torch.randint(0, V, (2, 8), generator=torch.Generator().manual_seed(1))
    trace = model.trace(tokens, states=True)
    x = trace.x_e
    for layer in trace.layers:
        assert layer.x is x
        read = (layer.h * layer.C[:, :, None, :]).sum(dim=-1)
        skip = layer.x_hat if isinstance(spec, MambaSpec) else 0.0
        assert_near(layer.y_hat, read + skip)
        x = layer.y
    assert torch.equal(trace.logits, model(tokens))
    assert model.trace(tokens).layers[0].h is None
    positions = torch.tensor([[7], [0]])
    assert_near(model.answer(tokens, positions), at_positions(trace.logits, positions))

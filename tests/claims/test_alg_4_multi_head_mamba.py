"""MultiHeadMamba is the printed Alg. 4 (`alg:mamba-2`) for each head pattern of Tab. 5 (`tab:head-patterns`).

The twin below is written as the paper writes it: one sequence, channels first, a loop over heads.
"""

import pytest
import torch
from test_alg_1_3_linear_mamba import conv1d, ssm
from torch import Tensor
from torch.nn.functional import one_hot

from closeness import assert_near, seeded
from recallscope.architectures.mamba import LinearMambaSpec, MultiHeadSpec
from recallscope.architectures.model import build_model
from recallscope.architectures.multihead_model import MultiHeadMamba
from recallscope.ops.head_patterns import dealing_weight, stacking_weight
from recallscope.specs import HeadPattern

V = 7
PATTERNS: tuple[HeadPattern, ...] = ("MHA", "MQA", "MKA", "MVA")


def draw_model(pattern: HeadPattern, M: int, seed: int = 0, **fields) -> MultiHeadMamba:
    spec = MultiHeadSpec(**{"embed_dim": 6, "state_dim": 3, "num_heads": M, "head_pattern": pattern, **fields})
    return build_model(spec, V, torch.Generator().manual_seed(seed), dtype=torch.float64)


def draw_tokens(seed: int = 1) -> Tensor:
    return torch.randint(0, V, (2, 8), generator=torch.Generator().manual_seed(seed))


def algorithm_4(model: MultiHeadMamba, x: Tensor) -> Tensor:
    w, p, M, P = model.layers[0], model.spec.head_pattern, model.spec.num_heads, model.spec.head_dim
    x_e = model.E @ x
    x_hat = conv1d(w.P_in_x @ x_e, w.W_conv_x)
    keys_in, queries_in = conv1d(w.P_in_B @ x_e, w.W_conv_B), conv1d(w.P_in_C @ x_e, w.W_conv_C)
    x_heads = [x_hat[h * P : (h + 1) * P] for h in range(M)]
    y_hat = torch.zeros_like(x_hat)
    for h in range(M):
        if p in ("MQA", "MKA"):
            x_h = sum(torch.diag(w.W_x[:, i]) @ x_heads[i] for i in range(M))
        else:
            x_h = w.W_x[:, h] @ torch.cat(x_heads)
        B_h = w.S_B[h if p in ("MHA", "MKA") else 0] @ keys_in
        C_h = w.S_C[h if p in ("MHA", "MQA") else 0] @ queries_in
        y_hat = y_hat + w.W_y[:, :, h] @ ssm(x_h, B_h, C_h)
    return model.E.T @ w.P_out @ y_hat


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("M", [1, 2, 6])
@pytest.mark.parametrize("expand", [1, 2])
@torch.no_grad()
def test_it_is_algorithm_4(pattern, M, expand) -> None:
    model, tokens = draw_model(pattern, M, expand=expand), draw_tokens()
    for row, logits in zip(tokens, model(tokens), strict=True):
        assert_near(logits, algorithm_4(model, one_hot(row, V).double().T).T)


@pytest.mark.parametrize("pattern", PATTERNS)
@torch.no_grad()
def test_what_the_heads_share_has_a_head_axis_of_one(pattern) -> None:
    """Tab. 5, row by row."""
    M, shared_x, shared_B, shared_C = 3, ("MQA", "MKA"), ("MQA", "MVA"), ("MKA", "MVA")
    layer = draw_model(pattern, M).trace(draw_tokens(), states=True).layers[0]
    x, B, C = (1 if pattern in shared else M for shared in (shared_x, shared_B, shared_C))
    assert (layer.x_heads.shape, layer.B.shape, layer.C.shape) == ((2, 8, x, 4), (2, 8, B, 3), (2, 8, C, 3))
    assert layer.y_heads.shape == (2, 8, M, 4)
    assert layer.h.shape == (2, 8, max(x, B), 4, 3)


def copy_shared(source: MultiHeadMamba, target: MultiHeadMamba) -> None:
    names = ("P_in_x", "P_in_B", "P_in_C", "W_conv_x", "W_conv_B", "W_conv_C", "S_B", "S_C", "P_out")
    target.E.copy_(source.E)
    for name in names:
        getattr(target.layers[0], name).copy_(getattr(source.layers[0], name))


@pytest.mark.parametrize("M", [2, 3, 6, 12])
@torch.no_grad()
def test_mva_with_trivial_weights_is_a_single_head(M) -> None:
    """Lem H.2 (`lem:mva-recall`): dealing values to heads that share keys and queries changes nothing."""
    single, several = draw_model("MVA", 1), draw_model("MVA", M)
    copy_shared(single, several)
    for model in (single, several):
        heads = model.spec.num_heads, model.spec.head_dim
        model.layers[0].W_x.copy_(dealing_weight(*heads))
        model.layers[0].W_y.copy_(stacking_weight(*heads))
    tokens = draw_tokens()
    assert_near(several(tokens), single(tokens))


@torch.no_grad()
def test_one_head_with_equal_projections_is_algorithm_1() -> None:
    """App. H.1: the single-layer model is the case M = 1, P = D_in."""
    single = build_model(LinearMambaSpec(embed_dim=6, state_dim=3), V, seeded(), dtype=torch.float64)
    model = MultiHeadSpec(embed_dim=6, state_dim=3, num_heads=1, head_pattern="MVA").blank_model(V).double()
    source, target = single.layers[0], model.layers[0]
    model.E.copy_(single.E)
    for letter in ("x", "B", "C"):
        getattr(target, f"P_in_{letter}").copy_(source.P_in)
        getattr(target, f"W_conv_{letter}").copy_(source.W_conv)
    target.S_B[0], target.S_C[0] = source.S_B, source.S_C
    target.P_out.copy_(source.P_out)
    target.W_x.copy_(dealing_weight(1, 12))
    target.W_y.copy_(stacking_weight(1, 12))
    tokens = draw_tokens()
    assert_near(model(tokens), single(tokens))

"""LinearMamba is the print: Alg. 1 (`alg:mamba`), or with residuals Alg. 3 (`app-alg:mamba-layers`).

The twin below is written as the paper writes it: one-hot columns, channels first, weights from the left.
"""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from closeness import assert_near, seeded
from recallscope.architectures.linear_mamba_model import LinearMamba
from recallscope.architectures.mamba import LinearMambaSpec
from recallscope.architectures.model import build_model

V = 11


def conv1d(x_in: Tensor, W_conv: Tensor) -> Tensor:
    D_conv, L = W_conv.shape[1], x_in.shape[1]
    x_hat = torch.zeros_like(x_in)
    for t in range(L):
        for tap in range(D_conv):
            tau = t - (D_conv - 1) + tap
            if tau >= 0:
                x_hat[:, t] += torch.diag(W_conv[:, tap]) @ x_in[:, tau]
    return x_hat


def ssm(x_hat: Tensor, B: Tensor, C: Tensor) -> Tensor:
    h = torch.zeros(len(x_hat), len(B), dtype=x_hat.dtype)
    y_hat = torch.zeros_like(x_hat)
    for t in range(x_hat.shape[1]):
        h = h + torch.outer(x_hat[:, t], B[:, t])
        y_hat[:, t] = h @ C[:, t]
    return y_hat


def mixer(layer, x: Tensor) -> Tensor:
    x_hat = conv1d(layer.P_in @ x, layer.W_conv)
    return layer.P_out @ ssm(x_hat, layer.S_B @ x_hat, layer.S_C @ x_hat)


def algorithm_1(model: LinearMamba, x: Tensor) -> Tensor:
    (layer,) = model.layers
    return model.E.T @ mixer(layer, model.E @ x)


def algorithm_3(model: LinearMamba, x: Tensor) -> Tensor:
    x_l = model.E @ x
    for layer in model.layers:
        x_l = x_l + mixer(layer, x_l)
    return model.E.T @ x_l


def draw_model(seed: int, **fields) -> LinearMamba:
    spec = LinearMambaSpec(**{"embed_dim": 4, "state_dim": 3, **fields})
    return build_model(spec, V, torch.Generator().manual_seed(seed), dtype=torch.float64)


def draw_tokens(seed: int, batch: int = 2, L: int = 9) -> Tensor:
    return torch.randint(0, V, (batch, L), generator=torch.Generator().manual_seed(seed))


def columns(tokens: Tensor) -> Tensor:
    return one_hot(tokens, V).double().T


SHAPES = [
    {},
    {"state_dim": 1},
    {"embed_dim": 1, "expand": 1, "state_dim": 1},
    {"conv_width": 1},
    {"conv_width": 4},
    {"expand": 3, "state_dim": 6},
]


@pytest.mark.parametrize("fields", SHAPES, ids=str)
@torch.no_grad()
def test_one_layer_is_algorithm_1(fields) -> None:
    model, tokens = draw_model(0, **fields), draw_tokens(1)
    for row, logits in zip(tokens, model(tokens), strict=True):
        assert_near(logits, algorithm_1(model, columns(row)).T)


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("fields", SHAPES, ids=str)
@torch.no_grad()
def test_layers_with_residuals_are_algorithm_3(layers, fields) -> None:
    model, tokens = draw_model(0, num_layers=layers, residual=True, **fields), draw_tokens(1)
    for row, logits in zip(tokens, model(tokens), strict=True):
        assert_near(logits, algorithm_3(model, columns(row)).T)


@torch.no_grad()
def test_a_sequence_of_one_token_and_a_vocabulary_of_two() -> None:
    model = build_model(LinearMambaSpec(embed_dim=3, state_dim=2), 2, seeded(), dtype=torch.float64)
    x = torch.eye(2, dtype=torch.float64)
    for token in range(2):
        logits = model(torch.tensor([[token]]))
        assert_near(logits[0], algorithm_1(model, x[:, token : token + 1]).T)

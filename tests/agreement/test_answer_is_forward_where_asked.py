"""`answer(tokens, positions)` is `forward(tokens)` gathered: logits and every gradient, for all models."""

import pytest
import torch
from torch import Tensor

from closeness import assert_agree, assert_near, output_and_gradients
from recallscope.architectures.mamba import LinearMambaSpec, Mamba2Spec, MambaSpec, MultiHeadSpec
from recallscope.architectures.model import build_model
from recallscope.ops.linear_scan import at_positions
from recallscope.specs import ARCHITECTURES

D_N = {"embed_dim": 6, "state_dim": 3}
PATTERNS = ("MHA", "MQA", "MKA", "MVA")
PLAIN = {"norm": "none", "skip": False}
SPECS = {
    "linear": LinearMambaSpec(**D_N),
    "linear, residual": LinearMambaSpec(**D_N, residual=True),
    "linear, wide kernel": LinearMambaSpec(**D_N, conv_width=4),
    "linear, 3 layers": LinearMambaSpec(**D_N, num_layers=3),
    **{p: MultiHeadSpec(**D_N, num_heads=3, head_pattern=p) for p in PATTERNS},
    "full": MambaSpec(**D_N),
    "full, 2 layers": MambaSpec(**D_N, num_layers=2),
    "full, no residual": MambaSpec(**D_N, residual=False),
    "ablation Base": MambaSpec(**D_N, **PLAIN, conv_width=4, delta_rank="full"),
    "ablation A": MambaSpec(**D_N, **PLAIN, conv_width=4, transition="identity"),
    "ablation B": MambaSpec(**D_N, **PLAIN, conv_width=4, transition="identity", gate=False),
    "ablation C": MambaSpec(**D_N, **PLAIN, conv_width=4, transition="identity", gate=False, activation="none"),
    "identity with skip, 2 layers": MambaSpec(**D_N, transition="identity", num_layers=2),
    **{f"mamba2 {p}": Mamba2Spec(**D_N, num_heads=3, head_pattern=p, num_layers=2) for p in PATTERNS},
}
for kind in ARCHITECTURES.names():
    if hasattr(cls := ARCHITECTURES.find(kind), "published"):  # the matrix memories, bare and with all parts
        sizes = D_N | {"state_dim": 4, "num_heads": 2, "num_layers": 2}  # rotary turns pairs
        SPECS |= {f"{kind}, {make.__name__}": make(**sizes) for make in (cls, cls.published)}
BATCH, L, Q = 3, 9, 4


@pytest.mark.parametrize("vocab_size", [2, BATCH * L - 1, BATCH * L, 60])
@pytest.mark.parametrize("name", SPECS)
def test_answer_is_forward_where_asked(name: str, vocab_size: int) -> None:
    """Vocabularies smaller than the batch (projections go through the table) and larger (they do not)."""
    g = torch.Generator().manual_seed(0)
    model = build_model(SPECS[name], vocab_size, g, dtype=torch.float64)
    for weight in model.parameters():  # those that start at constants are moved off them
        weight.data += 0.1 * torch.randn(weight.shape, generator=g, dtype=weight.dtype)
    tokens = torch.randint(0, vocab_size, (BATCH, L), generator=g)
    positions = torch.randint(0, L, (BATCH, Q), generator=g)
    weights = dict(model.named_parameters())

    def gathered() -> dict[str, Tensor]:
        return output_and_gradients(at_positions(model(tokens), positions), weights)

    assert_agree(output_and_gradients(model.answer(tokens, positions), weights), gathered, weights.values())


@pytest.mark.parametrize("name", SPECS)
@torch.no_grad()
def test_one_token_can_be_asked(name: str) -> None:
    model = build_model(SPECS[name], 5, torch.Generator().manual_seed(0), dtype=torch.float64)
    tokens = torch.tensor([[3]])
    assert_near(model.answer(tokens, torch.tensor([[0]])), model(tokens))

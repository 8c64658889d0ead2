"""Our flat AdamW and clipping against torch's, over many steps."""

import pytest
import torch

from closeness import assert_near
from recallscope.architectures.mamba import LinearMambaSpec, MambaSpec
from recallscope.architectures.model import build_model
from recallscope.specs import TrainSpec
from recallscope.train.optimizer import FlatWeights


@pytest.mark.parametrize("spec", [LinearMambaSpec(embed_dim=6, state_dim=3), MambaSpec(embed_dim=6, state_dim=3)])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_equals_torch(spec, decay):
    train = TrainSpec(weight_decay=decay, clip_norm=0.7)
    ours, theirs = (build_model(spec, 16, torch.Generator().manual_seed(0), dtype=torch.float64) for _ in range(2))
    spared = theirs.undecayed()
    groups = [
        {"params": [p for n, p in theirs.named_parameters() if n not in spared], "weight_decay": decay},
        {"params": [p for n, p in theirs.named_parameters() if n in spared], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW([g for g in groups if g["params"]], betas=(0.9, 0.95))
    weights = FlatWeights(ours, train)
    noise = torch.Generator().manual_seed(1)
    for step in range(20):
        rate = 0.01 * (1 + step % 3)
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            grad = torch.randn(p.shape, generator=noise, dtype=torch.float64) * (0.01 if step % 2 else 1.0)
            p.grad += grad
            q.grad = grad / 2
        for group in optimizer.param_groups:
            group["lr"] = rate
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.7)
        optimizer.step()
        weights.step(rate, 0.7, scale=0.5)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert_near(p, q)
    assert all(float(grad.abs().max()) == 0 for grad in weights.grads)

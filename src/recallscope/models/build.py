"""From spec to model: the only place that asks which kind a spec is."""

import torch

from recallscope.models.base import RecallModel
from recallscope.models.full import FullMamba
from recallscope.models.full2 import Full2Mamba
from recallscope.models.linear import LinearMamba
from recallscope.models.multihead import MultiHeadMamba
from recallscope.specs import Full2Spec, FullSpec, LinearSpec, ModelSpec, MultiHeadSpec


def blank_model(
    spec: ModelSpec,
    vocab_size: int,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> RecallModel:
    """The model a spec describes, weights zero: for circuits to write down, or files to fill."""
    model: RecallModel
    match spec:
        case LinearSpec():
            model = LinearMamba(spec, vocab_size)
        case MultiHeadSpec():
            model = MultiHeadMamba(spec, vocab_size)
        case FullSpec():
            model = FullMamba(spec, vocab_size)
        case Full2Spec():
            model = Full2Mamba(spec, vocab_size)
    return model.to(device=device, dtype=dtype)


def build_model(
    spec: ModelSpec,
    vocab_size: int,
    generator: torch.Generator,
    *,
    embedding_std: float = 1.0,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> RecallModel:
    """The model a spec describes, weights drawn from `generator` and from nothing else.

    Torch's default distributions, as in the published experiments: E ~ N(0, 1), the rest U(±1/√fan_in).

    Paper: App. K.2 names the code bases; initial weights are theirs.
    """
    model = blank_model(spec, vocab_size, device=device, dtype=dtype)
    model.draw_weights(generator, embedding_std=embedding_std)
    return model

"""A Hugging Face config.json of a Mamba or Mamba-2, and the model it describes."""

import logging
import math
from abc import abstractmethod
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from torch import Tensor

from recallscope.architectures.blocks import BlockModel
from recallscope.architectures.details import Details
from recallscope.architectures.mamba import FullSpec
from recallscope.architectures.mamba2 import Full2Spec
from recallscope.architectures.mamba2_model import Full2Mamba
from recallscope.architectures.mamba_model import FullMamba
from recallscope.specs import Positive, Size

logger = logging.getLogger(__name__)


def _plain_float(value: Any) -> Any:
    """transformers writes infinity as {"__float__": "Infinity"}."""
    return float(value["__float__"]) if isinstance(value, dict) and set(value) == {"__float__"} else value


class _Config(BaseModel):
    """The fields that change what is computed; the rest (caches, initial weights, token ids) is not read."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    vocab_size: Size
    hidden_size: Size
    state_size: Size
    num_hidden_layers: Size
    expand: Size = 2
    conv_kernel: Size = 4
    use_bias: bool = False
    use_conv_bias: bool = True
    hidden_act: Literal["silu", "swish"] = "silu"
    layer_norm_epsilon: Positive = 1e-5
    tie_word_embeddings: bool

    @abstractmethod
    def details(self) -> Details:
        """What the spec does not say."""

    @abstractmethod
    def blank_model(self) -> BlockModel:
        """The model, to be filled with the checkpoint's weights."""

    def adapted(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The checkpoint's tensors in our shapes."""
        return tensors

    def _shared(self) -> dict[str, Any]:
        return {
            "embed_dim": self.hidden_size,
            "state_dim": self.state_size,
            "expand": self.expand,
            "conv_width": self.conv_kernel,
            "num_layers": self.num_hidden_layers,
            "conv_bias": self.use_conv_bias,
        }


class MambaConfig(_Config):
    """Of `MambaForCausalLM`."""

    model_type: Literal["mamba"]
    state_size: Size = 16
    time_step_rank: Size | Literal["auto"] = "auto"
    tie_word_embeddings: bool = True

    def blank_model(self) -> FullMamba:
        """Eq. 1-3, every part switched on."""
        return FullMamba(FullSpec(**self._shared()), self.vocab_size, self.details())

    def details(self) -> Details:
        """What the spec does not say."""
        return Details(
            norm_eps=self.layer_norm_epsilon,
            projection_bias=self.use_bias,
            tied_head=self.tie_word_embeddings,
            delta_rank=None if self.time_step_rank == "auto" else self.time_step_rank,
        )


class Mamba2Config(_Config):
    """Of `Mamba2ForCausalLM`."""

    model_type: Literal["mamba2"]
    state_size: Size = 128
    num_heads: Size
    head_dim: Size
    n_groups: Size = 8
    time_step_limit: tuple[Annotated[float, BeforeValidator(_plain_float)], ...] = (0.0, math.inf)
    tie_word_embeddings: bool = False

    def blank_model(self) -> Full2Mamba:
        """One group of keys and queries is MVA; more are MHA, shared ones repeated."""
        E = self.expand * self.hidden_size
        if self.num_heads * self.head_dim != E or self.num_heads % self.n_groups:
            raise ValueError(
                f"num_heads={self.num_heads} x head_dim={self.head_dim} with n_groups={self.n_groups} does not fit "
                f"expand x hidden_size = {E}: heads share out the channels, and groups the heads, evenly."
            )
        pattern: Literal["MVA", "MHA"] = "MVA" if self.n_groups == 1 else "MHA"
        spec = Full2Spec(**self._shared(), num_heads=self.num_heads, head_pattern=pattern)
        return Full2Mamba(spec, self.vocab_size, self.details())

    def adapted(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Heads that share keys and queries in groups get a copy each: the same function, as MHA."""
        G, M, N, E = self.n_groups, self.num_heads, self.state_size, self.expand * self.hidden_size
        if G in (1, M):
            return tensors
        logger.info("n_groups=%d of %d heads: keys and queries are repeated for every head", G, M)

        def repeated(weight: Tensor, before: int) -> Tensor:
            first, B, C, last = weight.split([before, G * N, G * N, weight.shape[0] - before - 2 * G * N])
            B, C = (v.unflatten(0, (G, N)).repeat_interleave(M // G, dim=0).flatten(0, 1) for v in (B, C))
            return torch.cat((first, B, C, last))

        before_B = {"mixer.in_proj.": 2 * E, "mixer.conv1d.": E}  # rows ahead of B: ẑ and x̂, or x̂ alone
        return tensors | {
            name: repeated(tensor, rows)
            for name, tensor in tensors.items()
            for part, rows in before_B.items()
            if part in name
        }

    def details(self) -> Details:
        """What the spec does not say."""
        lowest, highest = self.time_step_limit
        return Details(
            norm_eps=self.layer_norm_epsilon,
            projection_bias=self.use_bias,
            tied_head=self.tie_word_embeddings,
            delta_limits=(lowest, highest),
        )


_CONFIG: TypeAdapter[MambaConfig | Mamba2Config] = TypeAdapter(
    Annotated[MambaConfig | Mamba2Config, Field(discriminator="model_type")]
)


def parse_config(text: str, path: str) -> MambaConfig | Mamba2Config:
    """The text of a config.json, or a ValueError that says what of it we cannot read."""
    try:
        return _CONFIG.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part not in ("mamba", "mamba2"))
        raise ValueError(
            f"{path}: {where or 'model_type'}: {first['msg']} (found {str(first['input'])[:80]!r}). from_pretrained "
            f"reads Hugging Face checkpoints of model_type mamba and mamba2 with SiLU; their relatives differ inside."
        ) from error

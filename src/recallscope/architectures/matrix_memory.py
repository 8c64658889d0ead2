"""Specs of the matrix memories: one layer around a memory of N x P numbers per head; `layer` names its class.

With the defaults it is the minimal variant that theory is about: one layer, queries, keys, values and gates from
windows of two tokens, nothing else. `SomeSpec.published(embed_dim=.., state_dim=..)` is the layer as its authors have
it.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from recallscope.architectures.sizes import Heads, with_residual
from recallscope.specs import Fraction, ModelSpec, Positive, Size, Steps, architecture, find_architecture

# what published layers have in common: those without a convolution, and those with a short one
LAYER: dict[str, Any] = {"norm": "rms", "residual": True, "output_norm": "rms", "conv_width": 1}
CONVOLVED = LAYER | {"conv": "depthwise", "conv_width": 4, "activation": "silu"}


class MatrixMemory(Heads):
    """Fields of every such architecture; N is `state_dim`, and the values of all heads have expand * D channels."""

    model = "recallscope.architectures.matrix_memory_model:MemoryModel"
    layer: ClassVar[str] = ""  # of the model: "package.module:Class", a `MemoryLayer` that is made from the spec
    PUBLISHED: ClassVar[dict[str, Any]] = LAYER  # in which the published layer differs from the minimal variant
    FOLLOWING: ClassVar[tuple[str, ...]] = ("residual",)
    num_heads: Size = Field(1, description="M")
    expand: Size = Field(1, description="channels of the values of all heads, over D")
    num_layers: Size = Field(1, description="Lambda, stacked layers")
    residual: bool = Field(description="add each layer's input to its output; on for deep models unless said otherwise")
    norm: Literal["rms", "none"] = Field("none", description="RMSNorm before each layer and before the head")
    conv: Literal["full", "depthwise", "shift"] = Field(
        "full",
        description="full: every tap of every projection is a matrix, gates included; depthwise: a number per channel "
        "and tap, after the projection, not for gates; shift: each projection sees a mix of this token and the last",
    )
    activation: Literal["silu", "none"] = Field("none", description="of q, k and v, after the convolution")
    plain_values: bool = Field(False, description="values pass neither the depthwise convolution nor the activation")
    qk_norm: Literal["l2", "none"] = Field("none", description="l2: queries and keys have length 1")
    output_norm: Literal["rms", "none"] = Field("none", description="RMSNorm of what each head reads")
    output_gate: Literal["silu", "sigmoid", "none"] = Field("none", description="of what is read, from the input")
    stem_width: Steps = Field(
        0, description="taps of a gated convolution between embedding and layers, zoology's first layer; 0: none"
    )
    mlp_width: Steps = Field(0, description="channels of a SwiGLU MLP, with its own norm, after every layer; 0: none")

    @classmethod
    def published(cls, **fields: Any) -> MatrixMemory:
        """The layer as its authors have it, with some fields given."""
        return cls(**(cls.PUBLISHED | fields))

    @property
    def layer_specs(self) -> tuple[MatrixMemory, ...]:
        """The spec of every layer, from the bottom up."""
        return (self,) * self.num_layers

    @property
    def writes_per_token(self) -> int:
        """Keys and values that a token brings."""
        return 1

    @property
    def own_law(self) -> str | None:
        """Laws speak about the minimal variant only, wherever its gates start."""
        return None if self.residual or self.changed - {"forget_start", "write_start"} else self.law

    @model_validator(mode="before")
    @classmethod
    def _deep_models_have_residuals(cls, data: Any) -> Any:
        return with_residual(data)

    @model_validator(mode="after")
    def _a_shift_sees_two_tokens(self) -> MatrixMemory:
        if self.conv == "shift" and self.conv_width != 2:
            raise ValueError(
                f"conv_width={self.conv_width} with conv='shift': a token shift sees this token and the last, two. "
                f"Use conv_width=2, or conv='depthwise'."
            )
        return self


class Rotary(ModelSpec):
    """Queries and keys that know their position."""

    rotary: bool = Field(False, description="rotary position embedding (RoPE) of queries and keys")
    rotary_base: Positive = Field(10_000.0, description="pair n of N/2 turns by base^(-2n/N) per token")

    @model_validator(mode="after")
    def _dimensions_turn_in_pairs(self) -> Rotary:
        N = self.size_of("state_dim")
        if self.rotary and N % 2:
            raise ValueError(f"state_dim={N} is odd: rotary turns dimensions in pairs. Use state_dim={N + 1}.")
        return self


class Forgetting(ModelSpec):
    """A gate that fades the state."""

    forget_start: Fraction = Field(
        0.9975, gt=0, lt=1, description="share of the state that a token leaves, at the start of training"
    )

    @property
    def fade_bias(self) -> float:
        """Where exp(-softplus) is the share at the start."""
        return inverse_softplus(-math.log(self.forget_start))


class Writing(ModelSpec):
    """A gate on what is written."""

    write_start: Fraction = Field(0.12, gt=0, lt=1, description="beta, how much is written, at the start of training")

    @property
    def write_bias(self) -> float:
        """Where the sigmoid is that."""
        return logit(self.write_start)


def inverse_softplus(x: float) -> float:
    """Where a softplus is x."""
    return x + math.log(-math.expm1(-x))


def logit(p: float) -> float:
    """Where a sigmoid is p."""
    return math.log(p / (1 - p))


@architecture("linear_attention")
class LinearAttentionSpec(MatrixMemory):
    """Linear attention: S <- S + f(k) vᵀ, read with f(q); Based with the Taylor map and the normaliser."""

    layer = "recallscope.architectures.attention_layers:LinearAttentionLayer"
    law = "trained-sharing"
    feature_map: Literal["identity", "relu", "elu", "taylor"] = Field(
        "identity", description="f: identity; relu; elu + 1; taylor: 1, x, x xᵀ, so that f(q) f(k) = 1 + s + s^2/2"
    )
    normaliser: bool = Field(False, description="divide by the sum of the weights")

    @property
    def feature_dim(self) -> int:
        """F, rows of the state; of the symmetric x xᵀ each entry once."""
        N = self.state_dim
        return 1 + N + N * (N + 1) // 2 if self.feature_map == "taylor" else N

    @property
    def state_entries(self) -> int:
        """Lambda F D_in, and F per head for the normaliser; the Taylor map's constant would sum to the token count."""
        F, counts = self.feature_dim, self.feature_map == "taylor"
        return self.depth * (F * self.inner_dim + self.num_heads * self.normaliser * (F - counts))


@architecture("retnet")
class RetNetSpec(Rotary, MatrixMemory):
    """RetNet: S <- gamma S + k vᵀ with a fixed gamma per head, 1 - 2^(-5-h)."""

    layer = "recallscope.architectures.fading_layers:RetNetLayer"
    law = "retention"
    PUBLISHED = LAYER | {"expand": 2, "output_gate": "silu", "rotary": True}
    slowest: Steps = Field(5, description="head h = 0, 1, .. keeps 1 - 2^-(slowest + h) of its state per token")


@architecture("gla")
class GLASpec(Forgetting, MatrixMemory):
    """Gated linear attention: S <- diag(alpha) S + k vᵀ, alpha = sigmoid(.)^(1/16) per row of S."""

    layer = "recallscope.architectures.fading_layers:GLALayer"
    law = "trained-sharing"  # at best: its gate forgets, and none decides what is written
    PUBLISHED = LAYER | {"output_gate": "silu", "forget_start": 0.958}
    gate_temper: Positive = Field(16.0, description="log alpha is a log-sigmoid divided by this")


@architecture("mlstm")
class MLSTMSpec(Forgetting, MatrixMemory):
    """mLSTM: S <- f S + i k vᵀ with an exponential write gate; the read is divided by max(|n q|, 1)."""

    layer = "recallscope.architectures.fading_layers:MLSTMLayer"
    law = "gated"
    PUBLISHED = CONVOLVED | {"plain_values": True, "expand": 2, "output_gate": "sigmoid"}
    normaliser: bool = Field(True, description="divide what is read by max(|n q|, 1), n being the faded sum of keys")

    @property
    def state_entries(self) -> int:
        """Lambda D_in N, and N per head for the normaliser."""
        return self.depth * self.state_dim * (self.inner_dim + self.num_heads * self.normaliser)


@architecture("delta_net")
class DeltaNetSpec(Writing, MatrixMemory):
    """DeltaNet: S <- S + beta k (v - Sᵀ k)ᵀ; a key's old value is replaced, not added to."""

    layer = "recallscope.architectures.delta_layers:DeltaNetLayer"
    law = "delta"
    PUBLISHED = CONVOLVED | {"write_start": 0.5}
    qk_norm: Literal["l2", "none"] = Field("l2", description="l2: queries and keys have length 1")


@architecture("gated_delta_net")
class GatedDeltaNetSpec(Forgetting, Writing, MatrixMemory):
    """Gated DeltaNet: the state decays by one alpha per head, then the delta rule."""

    layer = "recallscope.architectures.delta_layers:GatedDeltaNetLayer"
    law: ClassVar[str | None] = "delta"
    PUBLISHED = CONVOLVED | {"expand": 2, "output_gate": "silu", "write_start": 0.5}
    qk_norm: Literal["l2", "none"] = Field("l2", description="l2: queries and keys have length 1")


@architecture("kda")
class KDASpec(GatedDeltaNetSpec):
    """Kimi Delta Attention: Gated DeltaNet with an alpha per row of the state."""

    layer = "recallscope.architectures.delta_layers:KDALayer"
    PUBLISHED = CONVOLVED | {"output_gate": "sigmoid", "write_start": 0.5}


@architecture("gated_delta_net2")
class GatedDeltaNet2Spec(KDASpec):
    """Gated DeltaNet-2: KDA with an erase rate per row of the state and a write rate per channel."""

    layer = "recallscope.architectures.delta_layers:GatedDeltaNet2Layer"


@architecture("comba")
class CombaSpec(GatedDeltaNetSpec):
    """Comba: Gated DeltaNet that subtracts less than it reads, S <- alpha S, then S + beta k (v - s Sᵀ k)ᵀ."""

    layer = "recallscope.architectures.delta_layers:CombaLayer"
    PUBLISHED = CONVOLVED | {"expand": 2, "output_gate": "sigmoid", "output_correction": 1.0, "write_start": 0.5}
    output_correction: Annotated[float, Field(ge=0, le=1e3)] = Field(
        0.0, description="queries less this times s k, learnt from this start; 0: queries as they are"
    )


@architecture("delta_product")
class DeltaProductSpec(Forgetting, Writing, MatrixMemory):
    """DeltaProduct: several steps of the delta rule per token, each with its own key, value and rate."""

    layer = "recallscope.architectures.delta_layers:DeltaProductLayer"
    law = "delta"
    PUBLISHED = CONVOLVED | {
        "expand": 2, "output_gate": "silu", "forget": True, "largest_rate": 2.0, "write_start": 0.5,
    }  # fmt: skip
    qk_norm: Literal["l2", "none"] = Field("l2", description="l2: queries and keys have length 1")
    num_steps: Size = Field(2, description="n_h, steps of the delta rule per token")
    forget: bool = Field(False, description="the state fades by one alpha per head before the first step")
    largest_rate: Annotated[float, Field(ge=1, le=2)] = Field(
        1.0, description="of beta; above 1 a step reverses what a key held, and leaves it the other sign"
    )

    @property
    def writes_per_token(self) -> int:
        """One per step."""
        return self.num_steps

    @property
    def write_bias(self) -> float:
        """Where largest_rate times the sigmoid is write_start."""
        return logit(self.write_start / self.largest_rate)


@architecture("preconditioned_delta_net")
class PreconditionedDeltaNetSpec(GatedDeltaNetSpec):
    """Preconditioned Gated DeltaNet: writes less where keys were written before, by a running sum of k² per row."""

    layer = "recallscope.architectures.delta_layers:PreconditionedDeltaNetLayer"
    law = None  # expected between delta and least-squares

    @property
    def state_entries(self) -> int:
        """Lambda D_in N, and N per head for the sum of k²."""
        return self.depth * self.state_dim * (self.inner_dim + self.num_heads)


@architecture("routed_memory")
class RoutedMemorySpec(Writing, MatrixMemory):
    """Routed memories: B matrices S <- S + beta k vᵀ; one router assigns keys to memories, another queries."""

    layer = "recallscope.architectures.attention_layers:RoutedMemoryLayer"
    law = "routed"
    PUBLISHED = CONVOLVED | {"expand": 2, "output_gate": "silu", "write_start": 0.5}
    num_memories: Size = Field(4, description="B, memories of N x P numbers per head")
    routing: Literal["top1", "soft"] = Field(
        "top1", description="top1: one memory per key and query, trained as if it were soft; soft: all, by a softmax"
    )

    @property
    def state_entries(self) -> int:
        """Lambda B D_in N."""
        return self.depth * self.num_memories * self.inner_dim * self.state_dim


@architecture("rwkv7")
class RWKV7Spec(Forgetting, Writing, MatrixMemory):
    """RWKV-7: S <- diag(w) S - (a o kappa) (kappaᵀ S) + k vᵀ; a rate a per row and a separate removal key."""

    layer = "recallscope.architectures.rwkv7_layers:RWKV7Layer"
    law = None  # open: a rate for every row and a removal key of its own
    PUBLISHED = LAYER | {"conv": "shift", "conv_width": 2, "output_gate": "sigmoid", "bonus": True, "write_start": 0.5}
    bonus: bool = Field(False, description="add the current token's value once more, weighted by its own match")


@architecture("mamba3")
class Mamba3Spec(Forgetting, MatrixMemory):
    """Mamba-3: S <- alpha S + beta k' v'ᵀ + gamma k vᵀ, k' v'ᵀ of the token before; k, q rotate by learned angles."""

    layer = "recallscope.architectures.mamba3_layers:Mamba3Layer"
    law = "gated"
    PUBLISHED = LAYER | {
        "expand": 2, "output_gate": "silu", "output_norm": "none", "qk_norm": "rms", "skip": True, "turning": 0.5,
    }  # fmt: skip
    qk_norm: Literal["l2", "rms", "none"] = Field(  # type: ignore[assignment]
        "none", description="rms: RMSNorm of q and k, and a bias on each"
    )
    trapezoid: bool = Field(True, description="part of what a token writes is written with the next one")
    turning: Fraction = Field(1.0, description="share of the rows of the state that turn, in pairs")
    skip: bool = Field(False, description="add the current token's value, times a number per head")
    step_start: Fraction = Field(0.12, gt=0, description="Delta, how much is written, at the start of training")

    @property
    def num_angles(self) -> int:
        """Pairs of rows that turn."""
        return int(self.turning * self.state_dim) // 2


@architecture("mesa_net")
class MesaNetSpec(Forgetting, Writing, MatrixMemory):
    """MesaNet: o = Sᵀ (H + lambda)⁻¹ q, the least-squares answer to all pairs so far; S sums k vᵀ, H sums k kᵀ."""

    layer = "recallscope.architectures.mesa_net_layers:MesaNetLayer"
    law = "least-squares"
    PUBLISHED = CONVOLVED | {"plain_values": True, "forget": True, "least_ridge": 0.25, "write_start": 0.5}
    qk_norm: Literal["l2", "none"] = Field("l2", description="l2: queries and keys have length 1")
    forget: bool = Field(False, description="S and H fade by one alpha per head")
    least_ridge: Annotated[float, Field(ge=0, le=1e6)] = Field(0.0, description="lambda is this plus what is learnt")

    @property
    def state_entries(self) -> int:
        """Lambda D_in N for S; H is symmetric, N (N + 1) / 2 numbers per head."""
        N = self.state_dim
        return self.depth * (self.inner_dim * N + self.num_heads * N * (N + 1) // 2)


@architecture("attention")
class AttentionSpec(Rotary, MatrixMemory):
    """Causal softmax attention: keeps every key and value, so its memory grows with the sequence."""

    layer = "recallscope.architectures.attention_layers:SoftmaxLayer"
    law: ClassVar[str | None] = "softmax"
    PUBLISHED = LAYER | {"output_norm": "none", "rotary": True}

    @property
    def state_entries(self) -> None:  # type: ignore[override]
        """No fixed number; see `state_entries_after`."""
        return

    def state_entries_after(self, tokens: int) -> int:
        """Lambda (M N + D_in) per token."""
        return self.depth * tokens * (self.num_heads * self.state_dim + self.inner_dim)


@architecture("window_attention")
class WindowAttentionSpec(AttentionSpec):
    """Sliding-window attention: softmax attention to the last w tokens."""

    layer = "recallscope.architectures.attention_layers:WindowLayer"
    law = None  # what is inside of the window is recalled, see docs/ARCHITECTURES.md
    window: Size = Field(16, description="w, tokens that are looked at, the current one included")

    def state_entries_after(self, tokens: int) -> int:
        """Lambda (M N + D_in) for each of the last w - 1 tokens."""
        return super().state_entries_after(min(tokens, self.window - 1))


@architecture("hybrid")
class HybridSpec(MatrixMemory):
    """Layers of several architectures; what differs from a default here goes to each of them."""

    PUBLISHED: ClassVar[dict[str, Any]] = {"as_published": True, "norm": "rms", "residual": True}
    FOLLOWING = ("residual", "num_layers")
    layers: str = Field(
        "gated_delta_net attention",
        description="architectures from the bottom up, each with its own fields: 'gla window_attention,window=32'",
    )
    as_published: bool = Field(False, description="every layer as its authors have it, not in its minimal variant")

    @model_validator(mode="before")
    @classmethod
    def _deep_models_have_residuals(cls, data: Any) -> Any:
        """And as many layers as are named."""
        if not isinstance(data, dict):
            return data
        named = len(str(data.get("layers", cls.model_fields["layers"].default)).split())
        if data.get("num_layers", named) != named:
            raise ValueError(f"num_layers={data['num_layers']}, but layers names {named}. Leave num_layers out.")
        return with_residual({**data, "num_layers": named})

    @model_validator(mode="after")
    def _layers_are_matrix_memories(self) -> HybridSpec:
        _ = self.layer_specs
        return self

    @property
    def layer_specs(self) -> tuple[MatrixMemory, ...]:
        """The spec of every layer, as of a model of that layer alone."""
        own = {"kind", "layers", "as_published", "num_layers"}
        shared = {name: getattr(self, name) for name in MatrixMemory.model_fields if name in self.changed - own}
        sizes = {"embed_dim": self.embed_dim, "state_dim": self.state_dim, "residual": self.residual}
        found = []
        for word in self.layers.split():
            kind, *given = word.split(",")
            cls = find_architecture(kind)
            if not issubclass(cls, MatrixMemory) or issubclass(cls, HybridSpec):
                raise ValueError(
                    f"layers={self.layers!r}: {kind} is not a matrix memory. Use attention, or one of "
                    f"docs/ARCHITECTURES.md."
                )
            fields = dict(pair.partition("=")[::2] for pair in given)
            if "num_layers" in fields:
                raise ValueError(f"layers={self.layers!r}: every word is one layer. Repeat {kind} instead.")
            layer = {name: _value(text) for name, text in fields.items()}
            found.append(cls(**((cls.PUBLISHED if self.as_published else {}) | shared | sizes | layer)))
        return tuple(found)

    @property
    def state_entries(self) -> int | None:  # type: ignore[override]
        """Those of all layers together; no fixed number with attention."""
        sizes = [layer.state_entries for layer in self.layer_specs]
        return None if None in sizes else sum(sizes)

    def state_entries_after(self, tokens: int) -> int:
        """Those of all layers together."""
        return sum(layer.state_entries_after(tokens) or 0 for layer in self.layer_specs)

    @property
    def writes_per_token(self) -> int:
        """The most of any layer."""
        return max(layer.writes_per_token for layer in self.layer_specs)

    def work_per_token(self) -> float:
        """Of all layers."""
        return sum(layer.work_per_token() for layer in self.layer_specs)


def _value(text: str) -> Any:
    """A number or truth value if it reads as one, else the word itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text

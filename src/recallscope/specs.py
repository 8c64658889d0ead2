"""The nouns of the package: what a task, a model and a run are. Plain facts, no torch, no side effects.

Every spec is frozen and strict. Derived numbers are properties, never fields. `content_hash` names a spec:
it is the same in every process, on every machine and for any order of fields.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

LARGEST = 10**9  # no dimension of a spec may exceed this: larger numbers are typing slips, not models

Size = Annotated[int, Field(gt=0, le=LARGEST)]
Steps = Annotated[int, Field(ge=0, le=LARGEST)]
Positive = Annotated[float, Field(gt=0, le=1e9)]
Fraction = Annotated[float, Field(ge=0, le=1)]

TaskKind = Literal["ar", "mqar", "repeated"]
Filler = Literal["random", "zero", "values"]
HeadPattern = Literal["MHA", "MQA", "MKA", "MVA"]


class Spec(BaseModel):
    """Frozen, strict, closed: an unknown field is an error, not a shrug."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def canonical_json(self) -> str:
        """One text per meaning: sorted keys, no white space, shortest exact floats."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"), allow_nan=False)

    def content_hash(self) -> str:
        """24 hex digits of SHA-256 over the kind of spec and its canonical JSON."""
        text = f"recallscope/{type(self).__name__}/{self.canonical_json()}"
        return hashlib.sha256(text.encode()).hexdigest()[:24]


class TaskSpec(Spec):
    """Associative recall, as zoology generates it.

    Paper: Sec. 2 (`par:mqar-definition`), Tab. 1 (`tab:mqar_notation`); repeated keys App. I.2
    (`app-subsec:repeated-keys-queries`).
    Departs: the printed text takes any L >= 4 N_f for granted; for repeated keys the facts fill 2 N_f N_k
        tokens, so L >= 2 N_f (N_k + 1). Zoology's own V > L is asked only of its bit-exact stream: what the
        task needs is N_f distinct keys out of V/2 - 1 (token 0 is never a key).
    """

    kind: TaskKind = Field(
        "mqar", description="ar: one query; mqar: every fact is asked once; repeated: keys are rewritten"
    )
    vocab_size: Size = Field(description="V, even: tokens 1..V/2-1 are keys, V/2..V-1 values, 0 is neither")
    num_facts: Size = Field(description="N_f, key-value pairs in the context")
    length: Size = Field(description="L, tokens in a sequence; 4 N_f for mqar and 2 N_f + 1 for ar unless given")
    power_a: Positive = Field(1.0, description="query slot g is drawn with weight (g+1)^(power_a-1); 1 is uniform")
    filler: Filler = Field("random", description="what fills the gaps: any token, 0, or values only")
    key_repeats: Size = Field(1, description="N_k, how often each key is written; the last value is the answer")

    @model_validator(mode="before")
    @classmethod
    def _length_follows_from_the_facts(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("length") is None and isinstance(data.get("num_facts"), int):
            kind, N_f, N_k = data.get("kind", "mqar"), data["num_facts"], data.get("key_repeats", 1)
            if isinstance(N_k, int):
                return {**data, "length": 2 * N_f + 1 if kind == "ar" else 2 * N_f * (N_k + 1)}
        return data

    @model_validator(mode="after")
    def _the_sequence_can_be_drawn(self) -> TaskSpec:
        V, N_f, L, N_k = self.vocab_size, self.num_facts, self.length, self.key_repeats
        if V % 2:
            raise ValueError(
                f"vocab_size={V} is odd: half of the tokens are keys and half are values (Sec. 2). "
                f"Use vocab_size={V + 1}."
            )
        if N_f > V // 2 - 1:
            raise ValueError(
                f"num_facts={N_f} needs {N_f} distinct keys, but vocab_size={V} leaves {V // 2 - 1} "
                f"(tokens 1..V/2-1; 0 is never a key). Use vocab_size >= {2 * N_f + 2}"
                + (f", or num_facts <= {V // 2 - 1}." if V > 2 else ".")
            )
        if self.kind != "repeated" and N_k != 1:
            raise ValueError(
                f"key_repeats={N_k} is for kind='repeated' only (App. I.2), and kind is {self.kind!r}. "
                f"Use kind='repeated', or key_repeats=1."
            )
        if self.kind == "ar":
            if L != 2 * N_f + 1:
                raise ValueError(
                    f"length={L} does not fit kind='ar': one query after {N_f} facts makes "
                    f"2 N_f + 1 = {2 * N_f + 1} tokens (Sec. 2). Leave length out, or use kind='mqar'."
                )
            return self
        if L % 2:
            raise ValueError(f"length={L} is odd: facts and query slots come in pairs of tokens. Use length={L + 1}.")
        if self.num_slots < N_f:
            rule = "4 N_f" if N_k == 1 else f"2 N_f (N_k + 1), N_k = {N_k}"
            least = 2 * N_f * (N_k + 1)
            raise ValueError(
                f"length={L} is too short for num_facts={N_f}: every fact is asked once, in a slot of two tokens "
                f"after the context, so length >= {rule} = {least} (Tab. 1). Use length={least}"
                + (f", or num_facts <= {L // (2 * (N_k + 1))}." if L >= 2 * (N_k + 1) else ".")
            )
        return self

    @property
    def num_keys(self) -> int:
        """V_k = V/2; token 0 counts as a key here, though it is never drawn as one."""
        return self.vocab_size // 2

    @property
    def num_values(self) -> int:
        """V_v = V/2."""
        return self.vocab_size // 2

    @property
    def context_length(self) -> int:
        """Tokens of the facts section, 2 N_f N_k."""
        return 2 * self.num_facts * self.key_repeats

    @property
    def num_slots(self) -> int:
        """G, places where a query may stand: 1 for AR, else (L - 2 N_f N_k) / 2."""
        return 1 if self.kind == "ar" else (self.length - self.context_length) // 2

    @property
    def num_queries(self) -> int:
        """Questions asked in one sequence: 1 for AR, else N_f."""
        return 1 if self.kind == "ar" else self.num_facts


class LinearSpec(Spec):
    """Simplified Mamba, one layer (Alg. 1, `alg:mamba`) or stacked with residuals (Alg. 3, `app-alg:mamba-layers`)."""

    kind: Literal["linear"] = "linear"
    embed_dim: Size = Field(description="D, width of the embedding")
    state_dim: Size = Field(description="N, state entries per channel")
    expand: Size = Field(2, description="D_in / D")
    conv_width: Size = Field(2, description="D_conv, taps of the causal convolution")
    num_layers: Size = Field(1, description="Lambda, stacked layers")
    residual: bool = Field(description="add each layer's input to its output; on for deep models unless said otherwise")

    @model_validator(mode="before")
    @classmethod
    def _deep_models_have_residuals(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("residual") is None:
            layers = data.get("num_layers", 1)
            return {**data, "residual": isinstance(layers, int) and layers > 1}
        return data

    @property
    def inner_dim(self) -> int:
        """D_in = expand * D."""
        return self.expand * self.embed_dim

    @property
    def effective_state(self) -> int:
        """N_eff = Lambda N (Thm 4.6)."""
        return self.num_layers * self.state_dim

    @property
    def state_entries(self) -> int:
        """S of Lem 4.5: scalars that carry the context, Lambda D_in N."""
        return self.num_layers * self.inner_dim * self.state_dim


class MultiHeadSpec(Spec):
    """Simplified Mamba-2 (Alg. 4, `alg:mamba-2`).

    Departs: the printed algorithm splits D channels into heads, the published experiments split the expanded
        width. `expand` says which: 1 as printed, 2 as published.
    """

    kind: Literal["multihead"] = "multihead"
    embed_dim: Size = Field(description="D, width of the embedding")
    state_dim: Size = Field(description="N, state entries per channel and head")
    num_heads: Size = Field(description="M")
    head_pattern: HeadPattern = Field(
        description="what the heads share (Tab. 5): MHA nothing, MQA x and B, MKA x and C, MVA B and C"
    )
    expand: Size = Field(2, description="channels split into heads, over D: 1 as printed, 2 as published")
    conv_width: Size = Field(2, description="D_conv, taps of the causal convolutions")

    @model_validator(mode="after")
    def _heads_divide_the_channels(self) -> MultiHeadSpec:
        if self.inner_dim % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads} does not divide the {self.inner_dim} channels (expand={self.expand} x "
                f"embed_dim={self.embed_dim}): every head takes P = D/M of them (Tab. 6). "
                f"Use num_heads={math.gcd(self.num_heads, self.inner_dim)}, or another embed_dim."
            )
        return self

    @property
    def inner_dim(self) -> int:
        """Channels over all heads."""
        return self.expand * self.embed_dim

    @property
    def head_dim(self) -> int:
        """P, channels per head."""
        return self.inner_dim // self.num_heads


class FullSpec(Spec):
    """Full Mamba (Eq. 1-3), with the switches of the ablation ladder (Tab. 8, `fig:mqar_ablation`)."""

    kind: Literal["full"] = "full"
    embed_dim: Size = Field(description="D, width of the embedding")
    state_dim: Size = Field(description="N, state entries per channel")
    expand: Size = Field(2, description="D_in / D")
    conv_width: Size = Field(2, description="D_conv, taps of the causal convolution (mamba-ssm's default is 4)")
    num_layers: Size = Field(1, description="Lambda, stacked layers")
    residual: bool = Field(True, description="add each layer's input to its output")
    norm: Literal["rms", "none"] = Field("rms", description="RMSNorm before each layer and before the head")
    gate: bool = Field(True, description="multiply by SiLU of the second half of in_proj")
    activation: Literal["silu", "none"] = Field("silu", description="what follows the convolution")
    transition: Literal["selective", "identity"] = Field(
        "selective",
        description="selective: exp(Delta A) with Delta from the input; identity: A-bar = I, no Delta",
    )
    delta_rank: Literal["low", "full"] = Field("low", description="rank of the Delta projection: ceil(D/16), or D_in")
    skip: bool = Field(True, description="the skip weight D of mamba-ssm, y += D x")
    conv_bias: bool = Field(True, description="bias after the convolution")

    @property
    def inner_dim(self) -> int:
        """D_in = expand * D."""
        return self.expand * self.embed_dim

    @property
    def state_entries(self) -> int:
        """S of Lem 4.5: scalars that carry the context, Lambda D_in N."""
        return self.num_layers * self.inner_dim * self.state_dim


class Full2Spec(Spec):
    """Full Mamba-2: the block of Eq. 1 with heads, gated norm and one decay per head; patterns as in Tab. 5."""

    kind: Literal["full2"] = "full2"
    embed_dim: Size = Field(description="D, width of the embedding")
    state_dim: Size = Field(description="N, state entries per channel")
    num_heads: Size = Field(description="M")
    head_pattern: HeadPattern = Field("MVA", description="what the heads share (Tab. 5); MVA is mamba-ssm's default")
    expand: Size = Field(2, description="D_in / D")
    conv_width: Size = Field(2, description="D_conv, taps of the causal convolution (mamba-ssm's default is 4)")
    num_layers: Size = Field(1, description="Lambda, stacked layers")
    residual: bool = Field(True, description="add each layer's input to its output")
    norm: Literal["rms", "none"] = Field("rms", description="RMSNorm before each layer and before the head")
    skip: bool = Field(True, description="the skip weight D of mamba-ssm, y += D x")
    conv_bias: bool = Field(True, description="bias after the convolution")

    @model_validator(mode="after")
    def _heads_divide_the_channels(self) -> Full2Spec:
        if self.inner_dim % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads} does not divide the {self.inner_dim} channels (expand={self.expand} x "
                f"embed_dim={self.embed_dim}): every head takes P = D_in/M of them. "
                f"Use num_heads={math.gcd(self.num_heads, self.inner_dim)}, or another embed_dim."
            )
        return self

    @property
    def inner_dim(self) -> int:
        """D_in = expand * D."""
        return self.expand * self.embed_dim

    @property
    def head_dim(self) -> int:
        """P, channels per head."""
        return self.inner_dim // self.num_heads

    @property
    def state_entries(self) -> int:
        """S of Lem 4.5: scalars that carry the context, Lambda D_in N."""
        return self.num_layers * self.inner_dim * self.state_dim


ModelSpec = Annotated[LinearSpec | MultiHeadSpec | FullSpec | Full2Spec, Field(discriminator="kind")]


class TrainSpec(Spec):
    """How a model learns (Tab. 9, `tab:hyperparams`); the defaults are the linear D-N grids'."""

    kind: Literal["train"] = "train"
    batch_size: Size = Field(128, description="sequences in one forward pass")
    accumulate: Size = Field(1, description="forward passes per optimiser step")
    learning_rate: Positive = Field(0.01, description="of the flat part of the schedule")
    warmup_steps: Steps = Field(100, description="linear, from 0")
    flat_steps: Steps = Field(400, description="at the learning rate")
    decay_steps: Steps = Field(1500, description="cosine, to 0")
    beta_1: Fraction = Field(0.9, description="AdamW")
    beta_2: Fraction = Field(0.95, description="AdamW")
    weight_decay: Annotated[float, Field(ge=0, le=1e3)] = Field(0.0, description="AdamW")
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(0.1, description="of the cross-entropy")
    clip_norm: Positive = Field(1.5, description="largest global gradient norm")
    stop_accuracy: Fraction = Field(1.0, description="stop when the validation accuracy reaches this")
    eval_every: Size = Field(250, description="steps between evaluations")
    eval_size: Size = Field(10_000, description="sequences in the validation set, and in the test set")
    embedding_std: Positive = Field(1.0, description="of the embedding at the start")

    @property
    def total_steps(self) -> int:
        """Warm-up, flat and decay together."""
        return self.warmup_steps + self.flat_steps + self.decay_steps


class RunSpec(Spec):
    """One training: everything its result depends on. Equal spec, equal result, bit for bit on one thread."""

    task: TaskSpec
    model: ModelSpec
    train: TrainSpec = Field(default_factory=TrainSpec)
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(0, description="owner of every random stream of the run")

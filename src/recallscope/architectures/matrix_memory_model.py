"""The layer around every matrix memory: norm, projections with a short convolution, the memory, norm, gate, projection.

An architecture says which gates it has (`gates`) and how the memory is driven (`update`, or `recall` itself). All that
is read is linear in the values, so state and attention follow from the same scan: unit queries read the state out,
unit values give the weight of every token.
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import reduce
from importlib import import_module
from typing import NamedTuple

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize, silu

from recallscope.architectures.capabilities import (
    Attention,
    FactCodes,
    HasAttention,
    HasRates,
    HasState,
    Rates,
    RevisesFacts,
    Steps,
    StepsState,
    WritesFacts,
    all_facts,
    why_not_by_pairs,
)
from recallscope.architectures.layered import LayeredModel, LayerTrace, RecallLayer
from recallscope.architectures.matrix_memory import MatrixMemory, Rotary
from recallscope.architectures.model import MissingCapabilityError, draw_uniform
from recallscope.ops.conv import add_taps, causal_conv
from recallscope.ops.delta_scan import delta_scan
from recallscope.ops.linear_scan import at_positions
from recallscope.ops.rotary import rotary

GATE_SCALE = 0.1  # of the weights of gates at the start: a gate begins near its bias
LOST = 1e-5  # a share of the state this small is rounding: it cannot be brought back


class Gate(NamedTuple):
    """A number per head and token, or `width` of them, before its activation; `bias` is where it starts."""

    width: int
    bias: float


class Drive(NamedTuple):
    """What tokens bring to the memory; with positions, q is that of the positions. Of several writes per token, keys
    stand side by side in k, and values in v."""

    q: Float[Tensor, "batch Q M N"]
    k: Float[Tensor, "batch L M N"]
    v: Float[Tensor, "batch L M P"]
    gates: dict[str, Float[Tensor, "batch L M width"]]


class Update(NamedTuple):
    """How a state changes: S <- diag(w) S + b (aᵀ S) + k vᵀ, read as Sᵀ q; see `ops/delta_scan.py`.

    A token may make several changes, `per_token`: they follow one another on the axis L, and q reads after the last.
    """

    q: Float[Tensor, "batch Q M F"]
    k: Float[Tensor, "batch L M F"]
    v: Float[Tensor, "batch L M P"]
    w: Float[Tensor, "batch L M #F"] | None = None
    a: Float[Tensor, "batch L M F"] | None = None
    b: Float[Tensor, "batch L M F"] | None = None
    per_token: int = 1

    def changes(self, t: int) -> range:
        """Where on the axis L the changes of the token at t are."""
        return range(t * self.per_token, (t + 1) * self.per_token)

    def write(self, t: int) -> Float[Tensor, "batch M P F"]:
        """v kᵀ of the token at t."""
        return einsum(self.v[:, t], self.k[:, t], "batch M P, batch M F -> batch M P F")

    def left(self, t: int) -> Float[Tensor, "batch M F F"]:
        """What the token at t leaves of the state before it: S becomes S times this, S being P x F."""
        return reduce(torch.matmul, map(self._left, self.changes(t)))

    def _left(self, t: int) -> Float[Tensor, "batch M F F"]:
        batch, _, M, F = self.k.shape
        w = self.k.new_ones(batch, M, F) if self.w is None else self.w[:, t].expand(batch, M, F)
        kept = torch.diag_embed(w)
        if self.a is None or self.b is None:
            return kept
        return kept + einsum(self.a[:, t], self.b[:, t], "batch M F, batch M G -> batch M F G")

    def after(self, state: Float[Tensor, "batch M P F"], t: int) -> Float[Tensor, "batch M P F"]:
        """The state after the token at t: S times `left`, plus `write`, without a matrix per token."""
        return reduce(self._after, self.changes(t), state)

    def _after(self, state: Float[Tensor, "batch M P F"], t: int) -> Float[Tensor, "batch M P F"]:
        now = state if self.w is None else state * self.w[:, t, :, None]
        if self.a is not None and self.b is not None:
            read = state @ self.a[:, t, ..., None]
            now = torch.addcmul(now, read, self.b[:, t, :, None])
        return torch.addcmul(now, self.v[:, t, ..., None], self.k[:, t, :, None])

    def kept(self, t: int) -> Float[Tensor, "batch M"]:
        """Share of the state's power that the token at t leaves, averaged over directions of a row."""
        return self.left(t).square().sum(dim=(-2, -1)) / self.k.shape[-1]

    def edited(self, edit: Float[Tensor, "batch M P F"], after: int) -> "Update":
        """The same, had `edit` been added to the state right after a token: F more writes there, under unit keys."""
        batch, _, M, F = self.k.shape
        units = torch.eye(F, dtype=self.k.dtype, device=self.k.device)[None, :, None].expand(batch, F, M, F)
        none = torch.zeros_like(units)
        here = Update(self.q, units, edit.permute(0, 3, 1, 2), torch.ones_like(units), none, none)

        def inserted(own: Tensor | None, more: Tensor) -> Tensor | None:
            if own is None:
                return None
            head, tail = own[:, : after + 1], own[:, after + 1 :]
            return torch.cat((head, more[..., : own.shape[-1]], tail), dim=1)

        return Update(self.q, *(inserted(own, more) for own, more in zip(self[1:6], here[1:6], strict=True)))  # type: ignore[arg-type]


def heads_at(x: Float[Tensor, "batch L M n"], positions: Int[Tensor, "batch Q"] | None) -> Float[Tensor, "batch Q M n"]:
    """What heads have at the positions, or at every token."""
    return x if positions is None else at_positions(x.flatten(2), positions).unflatten(-1, x.shape[2:])


def rotated(spec: Rotary, drive: Drive, positions: Int[Tensor, "batch Q"] | None) -> Drive:
    """Queries at the positions and keys at all tokens, with their rotary embedding if the spec has one."""
    if not spec.rotary:
        return drive
    return drive._replace(q=rotary(drive.q, spec.rotary_base, positions), k=rotary(drive.k, spec.rotary_base))


class Stem(nn.Module):
    """The first of zoology's two layers: x + u + conv(u) ⊙ (W u + b) with u = norm(x); the second is the mixer."""

    def __init__(self, spec: MatrixMemory) -> None:
        super().__init__()
        D = spec.embed_dim
        self.norm = nn.RMSNorm(D, eps=1e-5) if spec.norm == "rms" else nn.Identity()
        self.W_conv, self.conv_bias = nn.Parameter(torch.zeros(D, spec.stem_width)), nn.Parameter(torch.zeros(D))
        self.W, self.bias = nn.Parameter(torch.zeros(D, D)), nn.Parameter(torch.zeros(D))

    def forward(self, x: Float[Tensor, "batch L D"]) -> Float[Tensor, "batch L D"]:
        """Of every token and the ones before it."""
        u = self.norm(x)
        return x + u + causal_conv(u, self.W_conv, self.conv_bias) * (u @ self.W.T + self.bias)

    def draw_weights(self, generator: torch.Generator) -> None:
        """torch's default for Linear and Conv1d."""
        D, taps = self.W_conv.shape
        for weight, fan_in in ((self.W_conv, taps), (self.conv_bias, taps), (self.W, D), (self.bias, D)):
            draw_uniform(weight, fan_in, generator)


class SwiGLU(nn.Module):
    """What some models do to each token after a layer: W_down (SiLU(W_gate x) ⊙ W_up x), after a norm of its own."""

    def __init__(self, spec: MatrixMemory) -> None:
        super().__init__()
        D, F = spec.embed_dim, spec.mlp_width
        self.norm = nn.RMSNorm(D, eps=1e-5) if spec.norm == "rms" else nn.Identity()
        self.W_gate, self.W_up = nn.Parameter(torch.zeros(F, D)), nn.Parameter(torch.zeros(F, D))
        self.W_down = nn.Parameter(torch.zeros(D, F))

    def forward(self, x: Float[Tensor, "batch T D"]) -> Float[Tensor, "batch T D"]:
        """Of every token alone."""
        u = self.norm(x)
        return (silu(u @ self.W_gate.T) * (u @ self.W_up.T)) @ self.W_down.T

    def draw_weights(self, generator: torch.Generator) -> None:
        """torch's default for Linear."""
        for weight in (self.W_gate, self.W_up, self.W_down):
            draw_uniform(weight, weight.shape[1], generator)


class MemoryLayer(RecallLayer):
    """One layer. Weights: `W_in` (taps, rows, D), rows for q, k, v of all heads, then gates; `W_out` (D, M P)."""

    no_state = "softmax attention keeps every key and value: its memory grows and is not a matrix of fixed size"

    def __init__(self, spec: MatrixMemory) -> None:
        super().__init__()
        D, M, N, P = spec.embed_dim, spec.num_heads, spec.state_dim, spec.head_dim
        self.spec, self.residual = spec, spec.residual
        self.gate_names = self.gates()
        writes = spec.writes_per_token
        self.rows = [M * N, M * writes * N, M * writes * P, *(M * gate.width for gate in self.gate_names.values())]
        taps, gate_rows = spec.conv_width if spec.conv == "full" else 1, sum(self.rows[3:])
        self.W_in = nn.Parameter(torch.zeros(taps, sum(self.rows), D))
        self.W_out = nn.Parameter(torch.zeros(D, M * P))
        self.gate_bias = nn.Parameter(torch.zeros(gate_rows)) if gate_rows else None
        self.W_conv = self.shift = self.W_gate = None
        if spec.conv == "depthwise":
            convolved = self.rows[: 2 if spec.plain_values else 3]
            self.W_conv = nn.Parameter(torch.zeros(sum(convolved), spec.conv_width))
        if spec.conv == "shift":
            self.shift = nn.Parameter(torch.zeros(len(self.rows), D))
        if spec.output_gate != "none":
            self.W_gate = nn.Parameter(torch.zeros(M * P, D))
        self.norm = nn.RMSNorm(D, eps=1e-5) if spec.norm == "rms" else nn.Identity()
        self.norm_out = nn.RMSNorm(P, eps=1e-5) if spec.output_norm == "rms" else nn.Identity()
        self.mlp = SwiGLU(spec) if spec.mlp_width else None

    def gates(self) -> dict[str, Gate]:
        """The gates of the architecture, by name."""
        return {}

    @abstractmethod
    def recall(self, drive: Drive, positions: Int[Tensor, "batch Q"] | None) -> Float[Tensor, "batch Q M P"]:
        """What the heads read after every token, or at the positions: linear in the values, of any width."""

    @abstractmethod
    def state(self, drive: Drive) -> Float[Tensor, "batch M P N"] | None:
        """The memory after the last token; None if it is no matrix of a fixed size."""

    def steps(self, x: Float[Tensor, "batch L D"]) -> Steps:
        """There is nothing to step."""
        raise MissingCapabilityError(f"{self.spec.kind}: {self.no_state}.")

    def why_not_edited(self) -> str | None:
        """Why nobody can say what a fact leaves in the memory, nor edit it; None if one can."""
        return self.no_state

    def drive(self, x_in: Float[Tensor, "batch L C"], positions: Int[Tensor, "batch Q"] | None = None) -> Drive:
        """Queries, keys, values and gates from the projected input."""
        spec, (M, N) = self.spec, (self.spec.num_heads, self.spec.state_dim)
        if self.W_conv is None:
            rows = add_taps(x_in.unflatten(-1, (-1, sum(self.rows))))
            plain, raw = rows.split([sum(self.rows[:3]), sum(self.rows[3:])], dim=-1)
        else:
            plain, raw = x_in.split([sum(self.rows[:3]), sum(self.rows[3:])], dim=-1)
        values: list[Tensor] = []
        if spec.plain_values:
            plain, *values = plain.split([sum(self.rows[:2]), self.rows[2]], dim=-1)
        plain = plain if self.W_conv is None else causal_conv(plain, self.W_conv)
        plain = silu(plain) if spec.activation == "silu" else plain
        plain = torch.cat((plain, *values), dim=-1) if values else plain
        q, k, v = (part.unflatten(-1, (M, -1)) for part in plain.split(self.rows[:3], dim=-1))
        q = heads_at(q, positions)
        if spec.qk_norm == "l2":
            q, k = normalize(q, dim=-1), normalize(k.unflatten(-1, (-1, N)), dim=-1).flatten(-2)
        parts = (raw if self.gate_bias is None else raw + self.gate_bias).split(self.rows[3:], dim=-1)
        gates = {name: part.unflatten(-1, (M, -1)) for name, part in zip(self.gate_names, parts, strict=True)}
        return self.prepared(Drive(q * N**-0.5, k, v, gates), positions)

    def prepared(self, drive: Drive, positions: Int[Tensor, "batch Q"] | None) -> Drive:
        """The drive as the memory takes it: keys and queries turned by position, values gated by channel."""
        return drive

    def project_in(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch C"]:
        """Norm and projections: what a token adds to q, k, v and gates, by tap where taps are matrices."""
        W: Tensor = self.W_in
        if self.shift is not None:
            mix = self.shift.repeat_interleave(torch.tensor(self.rows, device=W.device), dim=0)
            W = torch.cat((W * mix, W * (1 - mix)))
        return self.norm(x) @ W.flatten(0, 1).T

    def project_out(self, o: Float[Tensor, "batch T M P"], x: Float[Tensor, "batch T D"]) -> Float[Tensor, "batch T D"]:
        """Norm, gate and projection of what was read, x being the layer's input there; then the MLP, if any."""
        read, gate = self.norm_out(o).flatten(2), self.gate(x)
        y = self.passed_on(x, (read if gate is None else read * gate) @ self.W_out.T)
        return y if self.mlp is None else y + self.mlp(y)

    def gate(self, x: Float[Tensor, "batch T D"]) -> Float[Tensor, "batch T D_in"] | None:
        """The factor on what is read."""
        if self.W_gate is None:
            return None
        z = self.norm(x) @ self.W_gate.T
        return silu(z) if self.spec.output_gate == "silu" else torch.sigmoid(z)

    def mix(self, x: Float[Tensor, "batch L D"]) -> Float[Tensor, "batch L D"]:
        """The layer at every token."""
        return self.project_out(self.recall(self.drive(self.project_in(x)), None), x)

    def read(
        self, x_in: Float[Tensor, "batch L C"], x_q: Float[Tensor, "batch Q D"], positions: Int[Tensor, "batch Q"]
    ) -> Float[Tensor, "batch Q D"]:
        """The memory runs through; what follows it is done at the positions."""
        return self.project_out(self.recall(self.drive(x_in, positions), positions), x_q)

    def trace(self, x: Float[Tensor, "batch L D"], *, states: bool = False) -> LayerTrace:
        """Every tensor; states token by token, if asked for and if there are any."""
        drive = self.drive(self.project_in(x))
        o, h = self.recall(drive, None), None
        if states:
            found = [self.state(_until(drive, t + 1)) for t in range(x.shape[1])]
            h = None if found[0] is None else torch.stack([one for one in found if one is not None], dim=1)
        k, v = drive.k[..., -self.spec.state_dim :], drive.v[..., -self.spec.head_dim :]  # the last of several writes
        return LayerTrace(
            x=x, x_hat=v.flatten(2), B=k, C=drive.q, y_hat=o.flatten(2), y=self.project_out(o, x), x_heads=v,
            y_heads=o, gate=self.gate(x), h=h,
        )  # fmt: skip

    def attention(self, x: Float[Tensor, "batch L D"]) -> Attention:
        """Weights of every token at every other: what is read where token τ alone has a value, 1."""
        drive, P = self.drive(self.project_in(x)), self.spec.head_dim
        (batch, L, M, _), gate = drive.v.shape, self.gate(x)
        units = torch.eye(L, dtype=x.dtype, device=x.device)[None, :, None].expand(batch, L, M, L)
        maps = self.recall(drive._replace(v=units), None).permute(0, 2, 3, 1)[:, :, None]  # batch M 1 tau t
        weight = getattr(self.norm_out, "weight", None)
        factor = None if gate is None else gate.unflatten(-1, (M, P))
        if weight is not None:
            factor = weight.expand(batch, L, M, P) if factor is None else factor * weight
        return Attention(maps, drive.v, self.W_out.unflatten(1, (M, P)), factor)

    @torch.no_grad()
    def draw_weights(self, generator: torch.Generator) -> None:
        """torch's default for Linear and Conv1d; gates start at their biases, a shift at one half."""
        spec = self.spec
        draw_uniform(self.W_in, self.W_in.shape[0] * spec.embed_dim, generator)
        self.W_in[:, sum(self.rows[:3]) :] *= GATE_SCALE
        if self.W_conv is not None:
            draw_uniform(self.W_conv, spec.conv_width, generator)
        if self.shift is not None:
            self.shift.fill_(0.5)
        if self.W_gate is not None:
            draw_uniform(self.W_gate, spec.embed_dim, generator)
        draw_uniform(self.W_out, spec.inner_dim, generator)
        if self.gate_bias is not None:
            new, gates = self.gate_bias.new_full, self.gate_names.values()
            self.gate_bias.copy_(torch.cat([new((spec.num_heads * gate.width,), gate.bias) for gate in gates]))
        if self.mlp is not None:
            self.mlp.draw_weights(generator)


class DeltaLayer(MemoryLayer):
    """A layer whose memory is one state per head that every token fades, corrects and adds to."""

    @abstractmethod
    def update(self, drive: Drive) -> Update:
        """How tokens change the state."""

    def why_not_edited(self) -> str | None:
        """One can."""
        return None

    def recall(self, drive: Drive, positions: Int[Tensor, "batch Q"] | None) -> Float[Tensor, "batch Q M P"]:
        """One scan, and what follows it."""
        update = self.update(drive)
        return self.after_scan(self.scan(update, positions), drive, update, positions)

    def scan(self, update: Update, positions: Int[Tensor, "batch Q"] | None) -> Float[Tensor, "batch Q M P_all"]:
        """What the queries read of the state, after the last change of their token."""
        if (n := update.per_token) > 1:
            batch, Q = update.q.shape[:2]
            tokens = torch.arange(Q, device=update.q.device).expand(batch, Q) if positions is None else positions
            positions = tokens * n + n - 1
        return delta_scan(*update[:6], positions=positions)

    def after_scan(
        self,
        o: Float[Tensor, "batch Q M P_all"],
        drive: Drive,
        update: Update,
        positions: Int[Tensor, "batch Q"] | None,
    ) -> Float[Tensor, "batch Q M P"]:
        """What the heads hand on of it: normalisers and bonuses come here."""
        return o

    def read_state(self, update: Update, state: Float[Tensor, "batch M P_all F"], t: int) -> Float[Tensor, "batch M P"]:
        """What the query at t reads of a state, before `after_scan`."""
        return (state @ update.q[:, t, ..., None]).squeeze(-1)

    def steps(self, x: Float[Tensor, "batch L D"]) -> Steps:
        """`recall` with the state after every token at hand."""
        drive = self.drive(self.project_in(x))
        update = self.update(drive)
        batch, changes, M, F = update.k.shape
        L = changes // update.per_token

        def finish(o: Tensor) -> Tensor:
            return self.project_out(self.after_scan(o, drive, update, None), x)

        empty = update.v.new_zeros(batch, M, update.v.shape[-1], F)
        return Steps(empty, L, update.after, lambda state, t: self.read_state(update, state, t), update.kept, finish)

    def recall_edited(
        self, drive: Drive, positions: Int[Tensor, "batch Q"], edit: Float[Tensor, "batch M P_all F"], after: int
    ) -> Float[Tensor, "batch Q M P"]:
        """`recall`, had the state been changed right after a token."""
        update = self.update(drive)
        later = positions + torch.where(positions > after, update.k.shape[-1], 0)
        return self.after_scan(self.scan(update.edited(edit, after), later), drive, update, positions)

    def state(self, drive: Drive) -> Float[Tensor, "batch M P N"]:
        """Unit queries at the last token."""
        update = self.update(drive)
        batch, L, M, F = update.k.shape
        units = torch.eye(F, dtype=update.k.dtype, device=update.k.device)[None, :, None].expand(batch, F, M, F)
        last = torch.full((batch, F), L - 1, device=units.device)
        return delta_scan(units, *update[1:6], positions=last).permute(0, 2, 3, 1)


def _layer_of(spec: MatrixMemory) -> MemoryLayer:
    module, _, name = spec.layer.rpartition(":")
    made: MemoryLayer = getattr(import_module(module or type(spec).__module__), name)(spec)
    return made


class MemoryModel(LayeredModel):
    """Such layers between the embedding and the head: HasState, HasKeys, HasAttention and HasRates; WritesFacts and
    RevisesFacts where a write depends on one pair alone."""

    spec: MatrixMemory
    layers: Sequence[MemoryLayer]

    def __init__(self, spec: MatrixMemory, vocab_size: int) -> None:
        stem = Stem(spec) if spec.stem_width else None
        super().__init__(spec, vocab_size, list(map(_layer_of, spec.layer_specs)), stem=stem)
        self.norm_f = nn.RMSNorm(spec.embed_dim, eps=1e-5) if spec.norm == "rms" else nn.Identity()

    def finish(self, y: Float[Tensor, "batch T D"]) -> Float[Tensor, "batch T D"]:
        """The norm before the head."""
        return self.norm_f(y)

    @torch.no_grad()
    def inputs(self, tokens: Int[Tensor, "batch L"]) -> list[Float[Tensor, "batch L D"]]:
        """What every layer reads."""
        found = [self.embed(tokens)]
        for layer in self.layers[:-1]:
            found.append(layer.mix(found[-1]))
        return found

    @torch.no_grad()
    def state_after(self, tokens: Int[Tensor, "batch L"]) -> tuple[Float[Tensor, "batch heads P N"], ...]:
        """The memory of every layer after the last token; normalisers are rows of their own."""
        pairs = zip(self.layers, self.inputs(tokens), strict=True)
        states = [layer.state(layer.drive(layer.project_in(x))) for layer, x in pairs]
        return tuple(state for state in states if state is not None)

    @torch.no_grad()
    def keys_and_queries(
        self, tokens: Int[Tensor, "batch L"], layer: int = -1
    ) -> tuple[Float[Tensor, "batch L heads_k N"], Float[Tensor, "batch L heads_q N"]]:
        """k and q of every token, or what the state has in their place: features, or a route."""
        chosen = self.layers[layer]
        drive = chosen.drive(chosen.project_in(self.inputs(tokens)[layer]))
        if isinstance(chosen, DeltaLayer) and (update := chosen.update(drive)).q.shape != drive.q.shape:
            return update.k, update.q
        return drive.k[..., -chosen.spec.state_dim :], drive.q

    @torch.no_grad()
    def attention(self, tokens: Int[Tensor, "batch L"], layer: int = -1) -> Attention:
        """One layer as attention: what is read is linear in the values. An output norm's length is left out."""
        return self.layers[layer].attention(self.inputs(tokens)[layer])

    def draw_weights(self, generator: torch.Generator, *, embedding_std: float = 1.0) -> None:
        """Embedding and layers, then the stem."""
        super().draw_weights(generator, embedding_std=embedding_std)
        if isinstance(self.stem, Stem):
            self.stem.draw_weights(generator)

    def logit_directions(self) -> Float[Tensor, "D V"]:
        """The head, with the weights of the norm before it."""
        weight = getattr(self.norm_f, "weight", None)
        return (self.head if weight is None else self.head * weight[:, None]).detach()

    @torch.no_grad()
    def rates(self, tokens: Int[Tensor, "batch L"], layer: int = -1) -> Rates:
        """Lengths of the keys that are written, -aᵀb, and means of w; of several changes by a token their mean."""
        update = self._update(tokens, layer)
        written = update.k.norm(dim=-1)
        erased = torch.zeros_like(written)
        if update.a is not None and update.b is not None:
            erased = -(update.a * update.b).sum(dim=-1)
        kept = torch.ones_like(written) if update.w is None else update.w.mean(dim=-1)
        return Rates(*(rate.unflatten(1, (-1, update.per_token)).mean(dim=2) for rate in (written, erased, kept)))

    def fact_codes(self) -> tuple[FactCodes, ...]:
        """What a fact leaves in an empty state. Normalisers, and the keys that MesaNet keeps, count as values."""
        keys, values = all_facts(self.vocab_size, self.E.device)
        update = self._update(torch.cartesian_prod(keys, values))
        return (FactCodes.averaged(update.v[:, 1], update.k[:, 1], keys, values),)

    def pair_writes(
        self, keys: Int[Tensor, " n"], values: Int[Tensor, " n"]
    ) -> tuple[Float[Tensor, "n heads P N"], ...] | None:
        """The same for some facts, each as it is."""
        return (self._update(torch.stack((keys, values), dim=1)).write(1),)

    @torch.no_grad()
    def answer_edited(
        self,
        tokens: Int[Tensor, "batch L"],
        positions: Int[Tensor, "batch Q"],
        edits: tuple[Float[Tensor, "batch heads P N"], ...],
        *,
        after: int,
        since: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch Q V"]:
        """Exact: the edit goes through every later token's fading and erasing, as the state does."""
        (layer,), (edit,), x = self.layers, edits, self.embed(tokens)
        assert isinstance(layer, DeltaLayer)
        drive = layer.drive(layer.project_in(x), positions)
        if since is not None:
            update, left = layer.update(drive), torch.zeros_like(edit)
            for t in range(after + 1):
                left = torch.where((since == t)[:, None, None, None], edit, left @ update.left(t))
            edit = left
        o = layer.recall_edited(drive, positions, edit, after)
        return self.unembed(self.finish(layer.project_out(o, at_positions(x, positions))))

    def write_facts(
        self, state: Float[Tensor, "n heads P N"], keys: Int[Tensor, " n"], values: Int[Tensor, " n"]
    ) -> Float[Tensor, "n heads P N"]:
        """One token of the recurrence: a delta rule replaces what the key held."""
        update = self._update(torch.stack((keys, values), dim=1))
        return state @ update.left(1) + update.write(1)

    def take_back(
        self, state: Float[Tensor, "n heads P N"], keys: Int[Tensor, " n"], values: Int[Tensor, " n"]
    ) -> tuple[Float[Tensor, "n heads P N"], Int[Tensor, "n heads"]]:
        """That token undone: what was written is subtracted, and what was erased comes back, unless all of it was.

        A delta rule of rate 1 leaves nothing under its key: that dimension is lost, and stays empty.
        """
        update = self._update(torch.stack((keys, values), dim=1))
        left = update.left(1).double()
        lost = left.shape[-1] - torch.linalg.matrix_rank(left, rtol=LOST)
        before = (state - update.write(1)).double() @ torch.linalg.pinv(left, rtol=LOST)
        return before.to(state.dtype), lost

    @torch.no_grad()
    def _update(self, tokens: Int[Tensor, "batch L"], layer: int = -1) -> Update:
        chosen = self.layers[layer]
        assert isinstance(chosen, DeltaLayer)
        return chosen.update(chosen.drive(chosen.project_in(self.inputs(tokens)[layer])))

    def why_not(self, protocol: type) -> str | None:
        """What a memory without a state lacks, and what a write depends on."""
        growing = [layer for layer in self.layers if not isinstance(layer, DeltaLayer)]
        if protocol in (HasState, HasRates, StepsState) and growing:
            return growing[0].no_state
        if protocol is HasAttention and self.spec.writes_per_token > 1:
            return "a token writes several values: no single weight says how much of it is read"
        if protocol in (WritesFacts, RevisesFacts):
            why = self.layers[0].why_not_edited() or why_not_by_pairs(len(self.layers), self.spec.conv_width)
            if why is None and self.stem is not None:
                why = f"stem_width={self.spec.stem_width}: a write depends on more than one pair. Use stem_width=0"
            if why is not None:
                return why
        return super().why_not(protocol)

    def undecayed(self) -> frozenset[str]:
        """Biases and rates, and the weights of norms."""
        spared = (
            "bias", "A_log", "shift", "log_ridge", "erase", "correction", "log_scale", "skip", "norm.weight",
            "norm_out.weight", "norm_f.weight", "norm_q.weight", "norm_k.weight",
        )  # fmt: skip
        return frozenset(name for name, _ in self.named_parameters() if name.endswith(spared))


def _until(drive: Drive, end: int) -> Drive:
    q, k, v, gates = drive
    return Drive(q[:, :end], k[:, :end], v[:, :end], {name: gate[:, :end] for name, gate in gates.items()})

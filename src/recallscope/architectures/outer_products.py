"""Layers whose memory is a sum of outer products, faded or not; and the capabilities that follow from that.

h_t = decay_t ⊙ h_{t-1} + step_t ⊙ v_t k_tᵀ, read as h_t q_t. All Mambas are of this form, linear attention and its
relatives as well. A layer that says what v, k, q, step and decay are (`memory`) shows its state, is attention, and can
be edited. A delta rule is not of this form: what it writes depends on the state.
"""

import copy
import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding

from recallscope.architectures.capabilities import Attention, FactCodes, Operators, Steps, Symbols, WritesFacts, blocks
from recallscope.architectures.layered import LayeredModel, RecallLayer
from recallscope.ops.linear_scan import at_positions
from recallscope.ops.table_scan import ONE_HEAD, Reading, table_scan


@dataclass(frozen=True)
class OuterProducts:
    """The memory of one layer while it reads some sequences; head axes are M, or 1 where the heads share.

    Paper: Eq. 4 (`eq:simple-ssm`) without step and decay, Eq. 2-3 (`eq:original-ssm`) with them.
    """

    values: Float[Tensor, "batch L #heads P"]
    """v, what is written: x̂"""
    keys: Float[Tensor, "batch L #heads N"]
    """k, where it is written: B"""
    queries: Float[Tensor, "batch L #heads N"]
    """q, where the state is read: C"""
    out: Float[Tensor, "D heads P"]
    """from what the heads read to the residual stream"""
    step: Float[Tensor, "batch L #heads #P"] | None = None
    """how strongly it is written: Δ"""
    decay: Callable[[int], Tensor] | None = None
    """t to what the token at t leaves of the state before it, `batch #heads #P #N`: Ā_t"""
    gate: Float[Tensor, "batch L #heads #P"] | None = None
    """factor on what is read"""

    def write(self, t: int) -> Float[Tensor, "batch heads P N"]:
        """What the token at t adds to the state."""
        v = self.values[:, t] if self.step is None else self.step[:, t] * self.values[:, t]
        return einsum(v, self.keys[:, t], "batch heads P, batch heads N -> batch heads P N")

    def state(self) -> Float[Tensor, "batch heads P N"]:
        """h after the last token."""
        if self.decay is None:
            v = self.values if self.step is None else self.step * self.values
            return einsum(v, self.keys, "batch L heads P, batch L heads N -> batch heads P N")
        h = self.write(0)
        for t in range(1, self.values.shape[1]):
            h = self.decay(t) * h + self.write(t)
        return h

    def after(self, state: Float[Tensor, "batch #heads P N"], t: int) -> Float[Tensor, "batch #heads P N"]:
        """h_t, from the state before it."""
        return self.write(t) + (state if self.decay is None else self.decay(t) * state)

    def read_state(self, state: Float[Tensor, "batch #heads P N"], t: int) -> Float[Tensor, "batch M P"]:
        """What the heads read of a state at t."""
        heads = state.expand(-1, self.out.shape[1], -1, -1)
        return einsum(heads, self.queries[:, t], "batch M P N, batch M N -> batch M P")

    def kept(self, t: int) -> Float[Tensor, "batch #heads"]:
        """Share of the state's power that the token at t leaves."""
        if self.decay is None:
            return self.values.new_ones(len(self.values), 1)
        return self.decay(t).square().mean(dim=(-2, -1))

    def read(self) -> Float[Tensor, "batch L M P"]:
        """h_t q_t after every token."""
        h, found = torch.zeros_like(self.write(0)), []
        for t in range(self.values.shape[1]):
            h = self.after(h, t)
            found.append(self.read_state(h, t))
        return torch.stack(found, dim=1)

    def attention(self) -> Attention:
        """α_τt = Σ_n q_t (Π_{τ<s<=t} decay_s) step_τ k_τ, so that h_t q_t = Σ_τ α_τt v_τ.

        Paper: App. D.5 (`noisy-attn`), for the recurrence of Eq. 3 (`eq:original-ssm`).
        """
        if self.decay is None and self.step is None:
            match = einsum(self.keys, self.queries, "batch tau heads N, batch t heads N -> batch heads tau t")
            maps = match.triu()[:, :, None]
        else:
            maps = self._faded_maps()
        return Attention(maps, self.values, self.out, self.gate)

    def _faded_maps(self) -> Float[Tensor, "batch heads P L L"]:
        """Every source's key is carried along as it fades."""
        L = self.values.shape[1]

        def written(t: int) -> Tensor:
            key = self.keys[:, t, :, None]
            return key if self.step is None else self.step[:, t, ..., None] * key

        shapes = [written(0).shape, *([] if self.decay is None else [self.decay(0).shape])]
        batch, *rest = torch.broadcast_shapes(*shapes)
        carried = self.keys.new_zeros(batch, L, *rest)
        columns = []
        for t in range(L):
            if self.decay is not None:
                carried *= self.decay(t)[:, None]
            carried[:, t] = written(t)
            columns.append(einsum(carried, self.queries[:, t], "batch tau M P N, batch M N -> batch M P tau"))
        return torch.stack(columns, dim=-1)

    def faded(
        self, write: Float[Tensor, "batch heads P N"], since: Int[Tensor, " batch"], now: int
    ) -> Float[Tensor, "batch heads P N"]:
        """What is left after token `now` of something written at the tokens `since`."""
        if self.decay is None:
            return write
        left = torch.zeros_like(write)
        for t in range(now + 1):
            left = torch.where((since == t)[:, None, None, None], write, left * self.decay(t))
        return left

    def readout(self, edit: Float[Tensor, "batch #heads P N"], *, after: int) -> Float[Tensor, "batch L M P"]:
        """What the heads read of something added to the state right after token `after`."""
        M, P = self.out.shape[1:]
        edit = edit.expand(-1, M, -1, -1)
        readout = edit.new_zeros(*self.values.shape[:2], M, P)
        for t in range(after + 1, readout.shape[1]):
            edit = edit if self.decay is None else edit * self.decay(t)
            readout[:, t] = einsum(edit, self.queries[:, t], "batch M P N, batch M N -> batch M P")
        return readout


class OuterProductLayer(RecallLayer):
    """A layer that can say what it writes and reads."""

    @abstractmethod
    def memory(self, x: Float[Tensor, "batch L D"]) -> OuterProducts:
        """Its memory while it reads x."""

    def steps(self, x: Float[Tensor, "batch L D"]) -> Steps:
        """Its memory, token by token."""
        memory = self.memory(x)
        empty, L = torch.zeros_like(memory.write(0)), memory.values.shape[1]
        return Steps(empty, L, memory.after, memory.read_state, memory.kept, lambda o: self.read_instead(x, o))

    @abstractmethod
    def read_instead(
        self, x: Float[Tensor, "batch L D"], readout: Float[Tensor, "batch L M P"]
    ) -> Float[Tensor, "batch L D"]:
        """`trace(x).y`, had the heads read `readout`; what passes beside the state stays as it is."""

    @abstractmethod
    def read_more(
        self, x: Float[Tensor, "batch L D"], readout: Float[Tensor, "batch L M P"]
    ) -> Float[Tensor, "batch L D"]:
        """`trace(x).y`, had the heads read `readout` beside what they do read."""


class OuterProductModel(LayeredModel):
    """Such layers between the embedding and the head: HasState, HasKeys, HasAttention, and half of WritesFacts."""

    layers: Sequence[OuterProductLayer]

    @torch.no_grad()
    def memories(self, tokens: Int[Tensor, "batch L"]) -> tuple[OuterProducts, ...]:
        """The memory of every layer while the model reads the tokens."""
        x = self.embed(tokens)
        found = [self.layers[0].memory(x)]
        for below, layer in itertools.pairwise(self.layers):
            x = below.mix(x)
            found.append(layer.memory(x))
        return tuple(found)

    def state_after(self, tokens: Int[Tensor, "batch L"]) -> tuple[Float[Tensor, "batch heads P N"], ...]:
        """h of every layer after the last token.   Paper: Eq. 4 (`eq:simple-ssm`), Eq. 3 (`eq:original-ssm`)."""
        with torch.no_grad():
            return tuple(memory.state() for memory in self.memories(tokens))

    def keys_and_queries(
        self, tokens: Int[Tensor, "batch L"], layer: int = -1
    ) -> tuple[Float[Tensor, "batch L heads_k N"], Float[Tensor, "batch L heads_q N"]]:
        """B and C of every token."""
        memory = self.memories(tokens)[layer]
        return memory.keys, memory.queries

    @torch.no_grad()
    def attention(self, tokens: Int[Tensor, "batch L"], layer: int = -1) -> Attention:
        """One layer as attention, decay included."""
        return self.memories(tokens)[layer].attention()

    def logit_directions(self) -> Float[Tensor, "D V"]:
        """The head."""
        return self.head.detach()

    @torch.no_grad()
    def pair_writes(
        self, keys: Int[Tensor, " n"], values: Int[Tensor, " n"]
    ) -> tuple[Float[Tensor, "n heads P N"], ...] | None:
        """What is written at a value that follows a key; known for a single layer with windows of two tokens."""
        if not self.reads_pairs:
            return None
        return tuple(memory.write(1) for memory in self.memories(torch.stack((keys, values), dim=1)))

    @property
    def reads_pairs(self) -> bool:
        """Whether what is written at a token depends on it and the one before, and on nothing else."""
        return len(self.layers) == 1 and self.spec.conv_width == 2

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
        """Logits at the positions, had the states been changed right after token `after`, one edit per layer.

        Paper: Eq. 4 (`eq:simple-ssm`), whose state forgets nothing; with the decay of Eq. 3 (`eq:original-ssm`) where
            there is one.
        """
        x = self.embed(tokens)
        for layer, edit in zip(self.layers, edits, strict=True):
            memory = layer.memory(x)
            edit = edit if since is None else memory.faded(edit, since, after)
            x = layer.read_more(x, memory.readout(edit, after=after))
        return self.unembed(self.finish(at_positions(x, positions)))

    @torch.no_grad()
    def read_once(self, tokens: Int[Tensor, "batch L"]) -> tuple[dict[str, Tensor], ...]:
        """h of every layer after the last token, and the inputs that its convolution still sees."""
        x, kept = self.embed(tokens), []
        for layer in self.layers:
            window = x[:, max(0, x.shape[1] - self.spec.conv_width + 1) :]
            kept.append({"state": layer.memory(x).state(), "window": window})
            x = layer.mix(x)
        return tuple(kept)

    @torch.no_grad()
    def answer_after(
        self, kept: tuple[dict[str, Tensor], ...], tokens: Int[Tensor, "batch T"]
    ) -> Float[Tensor, "batch V"]:
        """Each layer reads the window again, and its state is set right after that, as `answer_edited` would."""
        x = self.embed(tokens)
        for layer, left in zip(self.layers, kept, strict=True):
            state, window = left["state"], left["window"]
            seen, w = torch.cat((window, x), dim=1), window.shape[1]
            edit = state - layer.memory(window).state() if w else state
            x = layer.read_more(seen, layer.memory(seen).readout(edit, after=w - 1))[:, w:]
        return self.unembed(self.finish(x[:, -1:]))[:, 0]


class OperatorLayer(OuterProductLayer):
    """A layer without anything but fixed linear maps around the meeting of keys and queries: one scan over the rows of
    `project_in`, which may be those of the whole vocabulary."""

    heads = ONE_HEAD
    conv_width: int
    S_B: nn.Parameter
    S_C: nn.Parameter
    P_out: nn.Parameter

    @abstractmethod
    def out(self) -> Float[Tensor, "D M P"]:
        """From what the heads read to the output."""

    def join(self, y_heads: Float[Tensor, "batch T M P"]) -> Float[Tensor, "batch T D"]:
        """From what the scan gives to the output."""
        return y_heads.flatten(-2) @ self.out().flatten(1).T

    def mix(self, x: Float[Tensor, "batch L D"]) -> Float[Tensor, "batch L D"]:
        """`trace(x).y` from few large products and one scan."""
        return self._scan(self.project_in(x).flatten(0, 1), None, None, len(x), x)

    def mix_tokens(self, table: Float[Tensor, "V D"], tokens: Int[Tensor, "batch L"]) -> Float[Tensor, "batch L D"]:
        """The same of tokens given by number: the products are over the vocabulary, if the batch has more tokens."""
        x = embedding(tokens, table)
        if len(table) >= tokens.numel():
            return self.mix(x)
        return self._scan(self.project_in(table), tokens, None, len(tokens), x)

    def read(
        self,
        x_in: Float[Tensor, "batch L C"],
        x_q: Float[Tensor, "batch Q D"],
        positions: Int[Tensor, "batch Q"],
    ) -> Float[Tensor, "batch Q D"]:
        """The scan runs through, and is read at the positions."""
        return self._scan(x_in.flatten(0, 1), None, positions, len(x_in), x_q)

    def read_tokens(
        self, table: Float[Tensor, "V D"], tokens: Int[Tensor, "batch L"], positions: Int[Tensor, "batch Q"]
    ) -> Float[Tensor, "batch Q D"]:
        """The same of tokens given by number."""
        if len(table) >= tokens.numel():
            return super().read_tokens(table, tokens, positions)
        x_q = embedding(tokens.gather(dim=1, index=positions), table)
        return self._scan(self.project_in(table), tokens, positions, len(tokens), x_q)

    def _scan(
        self, rows: Tensor, ids: Tensor | None, positions: Tensor | None, batch: int, x: Tensor
    ) -> Float[Tensor, "batch T D"]:
        """From rows of `project_in` to the output, x being the input where it is read."""
        reading = Reading(ids, positions, batch, self.S_B.shape[-2], self.heads)
        return self.passed_on(x, self.join(table_scan(rows.unflatten(-1, (self.conv_width, -1)), reading)))

    def read_instead(
        self, x: Float[Tensor, "batch L D"], readout: Float[Tensor, "batch L M P"]
    ) -> Float[Tensor, "batch L D"]:
        """P_out of what was read."""
        return self.passed_on(x, einsum(readout, self.out(), "batch L M P, D M P -> batch L D"))

    def read_more(
        self, x: Float[Tensor, "batch L D"], readout: Float[Tensor, "batch L M P"]
    ) -> Float[Tensor, "batch L D"]:
        """The output is linear in what is read."""
        return self.mix(x) + einsum(readout, self.out(), "batch L M P, D M P -> batch L D")

    @abstractmethod
    def operators(self, code: Float[Tensor, "D T"]) -> tuple[Operators, ...]:
        """One `Operators` per head. `code` names the symbols: E for tokens, the identity for the residual stream.

        Paper: Eq. 9 (`eq:proj-opertators`); heads as in Alg. 4 (`alg:mamba-2`).
        """

    @abstractmethod
    def rotate(self, Q: Float[Tensor, "D D"], generator: torch.Generator, spread: float) -> None:
        """Other weights for the same function, in a residual stream that was rotated by Q."""

    def rotate_state(self, generator: torch.Generator, spread: float) -> None:
        """One R and one c for all heads, as some patterns share keys or queries between them."""
        R = random_rotation(self.S_B.shape[-2], generator, self.S_B)
        c = random_scales(1, generator, spread, R)
        joint = random_scales(1, generator, spread, R)
        self.S_B.copy_(c * (R @ self.S_B))
        self.S_C.copy_((R @ self.S_C) / (c * joint))
        self.P_out.mul_(joint)


class OperatorModel(OuterProductModel):
    """Such layers: HasOperators, WritesFacts and HasRotations, beside what all sums of outer products have."""

    layers: Sequence[OperatorLayer]

    @property
    def residual(self) -> bool:
        """Whether each layer adds its input to its output."""
        return bool(getattr(self.spec, "residual", False))

    @torch.no_grad()
    def operators(self, symbols: Symbols = "tokens") -> tuple[tuple[Operators, ...], ...]:
        """The operators of every head of every layer, on tokens or on the axes of the residual stream.

        In layers above the first, operators on tokens describe the direct path: the layer reads the part of the
        residual stream that still is the embedding, and what it writes goes to the head as it is.

        Paper: Eq. 9 (`eq:proj-opertators`); layers as in Thm G.1 (`app-thm:multi-layer-recall`).
        """
        E = self.E.detach()
        code = E if symbols == "tokens" else torch.eye(len(E), dtype=E.dtype, device=E.device)
        return tuple(layer.operators(code) for layer in self.layers)

    def fact_codes(self) -> tuple[FactCodes, ...]:
        """v' and k' from the operators. A window of more than two tokens holds a fact several times, once per place."""
        return tuple(_codes_of(heads) for heads in self.operators())

    @torch.no_grad()
    def rotated(self, generator: torch.Generator, *, spread: float = 0.5) -> "OperatorModel":
        """An equivalent copy: every freedom below is drawn at random.

        - E -> QᵀE, P_in -> P_in Q, P_out -> QᵀP_out, with one rotation Q for all layers, as they share the stream;
        - inner channels are permuted and scaled, by exp(`spread` x normal), signs flipped: a depthwise convolution
          allows no more. What is scaled on the way in is scaled back on every way out;
        - S_B -> R S_B, S_C -> R S_C with a rotation R of the state, and S_B -> c S_B, S_C -> S_C / c;
        - P_out -> c P_out, S_C -> S_C / c: the one that reaches G_vv and G_kq, as the factor `fix_scale` fixes.

        Paper: Sec. 3.2 (`par:equiv-recall`).
        Departs: the print has Q alone. Any invertible matrix would do for Q and, with its inverse transposed, for R.
        """
        rotated = copy.deepcopy(self)
        Q = random_rotation(len(self.E), generator, self.E)
        rotated.E.copy_(Q.T @ self.E)
        for layer in rotated.layers:
            layer.rotate(Q, generator, spread)
        return rotated

    def why_not(self, protocol: type) -> str | None:
        """Windows of one token hold no fact."""
        if protocol is WritesFacts and self.spec.conv_width < 2:
            return "conv_width=1: no window holds a key and its value, so no fact is written. Use conv_width >= 2"
        return super().why_not(protocol)


def _codes_of(heads: Sequence[Operators]) -> FactCodes:
    """The key stands one place before its value."""
    values = [blocks(head.Pi_v_in, head.size)[1:].mT for head in heads]  # places V P
    keys = [blocks(head.Pi_k_in, head.size)[:-1].mT for head in heads]
    return FactCodes(torch.stack(values, dim=2), torch.stack(keys, dim=2))


def random_rotation(dim: int, generator: torch.Generator, like: Tensor) -> Float[Tensor, "dim dim"]:
    """A rotation or reflection of R^dim, all equally likely."""
    drawn = torch.randn(dim, dim, generator=generator, dtype=torch.float64, device=generator.device)
    Q, upper = torch.linalg.qr(drawn)
    return (Q * upper.diagonal().sign()).to(like)


def random_scales(count: int, generator: torch.Generator, spread: float, like: Tensor) -> Float[Tensor, " count"]:
    """exp(`spread` x normal), of either sign: away from 0."""
    normal = torch.randn(2, count, generator=generator, dtype=torch.float64, device=generator.device)
    return (torch.exp(spread * normal[0]) * torch.where(normal[1] < 0, -1.0, 1.0)).to(like)


def random_order(count: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """A permutation."""
    return torch.randperm(count, generator=generator, device=generator.device).to(like.device)

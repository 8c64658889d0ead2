"""Capabilities: what some models can do beside answering, as small protocols, and the plain data they hand over.

Code that needs one asks `model.capability(HasState)` and says what it leaves out if the answer is None, or asks
`model.require(HasState)`, which raises an error that says why. Nothing asks which kind a model is. A user's own module
has a capability as soon as it has the methods. What a capability shows carries no gradient.

Weights can be rotated without changing the function, so weights prove nothing. `Operators` act on tokens on both
sides, and rotations inside cancel. One freedom is left: G_vv may be multiplied by c and G_kq by 1/c, sign included.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from einops import einsum
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn.functional import one_hot, pad

Symbols = Literal["tokens", "stream"]


def key_tokens(vocab_size: int) -> slice:
    """Tokens 1 .. V/2 - 1. Token 0 is neither key nor value: it may fill gaps, but no fact begins with it.

    Paper: Sec. 2 (`par:mqar-definition`).
    """
    return slice(1, vocab_size // 2)


def value_tokens(vocab_size: int) -> slice:
    """Tokens V/2 .. V - 1.   Paper: Sec. 2 (`par:mqar-definition`)."""
    return slice(vocab_size // 2, vocab_size)


def all_facts(vocab_size: int, device: torch.device | None = None) -> tuple[Int[Tensor, " n_k"], Int[Tensor, " n_v"]]:
    """All keys and all values."""
    ids = torch.arange(vocab_size, device=device)
    return ids[key_tokens(vocab_size)], ids[value_tokens(vocab_size)]


def one_hot_tokens(
    tokens: Int[Tensor, "*batch L"], vocab_size: int, *, dtype: torch.dtype
) -> Float[Tensor, "*batch L V"]:
    """x_t as the paper writes it, a one-hot vector per token.   Paper: Tab. 1 (`tab:mqar_notation`)."""
    return one_hot(tokens, vocab_size).to(dtype)


def windows(x: Float[Tensor, "*batch L T"], conv_width: int) -> Float[Tensor, "*batch L WT"]:
    """ξ_t, the last D_conv tokens stacked, oldest first: (x_{t-1}; x_t) for width 2. Before the first token: 0.

    Paper: Eq. 10, ξ_t for D_conv = 2.   Holds for: any D_conv.
    """
    L = x.shape[-2]
    padded = pad(x, (0, 0, conv_width - 1, 0))
    return torch.cat([padded[..., tap : tap + L, :] for tap in range(conv_width)], dim=-1)


def blocks(matrix: Shaped[Tensor, "rows WT"], size: int) -> Shaped[Tensor, "W rows T"]:
    """The columns of an operator on windows, one block per token of the window, oldest first."""
    return torch.stack(matrix.split(size, dim=1))


@dataclass(frozen=True)
class Operators:
    """The net operators of one head, on windows of W = D_conv symbols out of T; T = V for tokens.

    Blocks of columns belong to the tokens of a window, oldest first: (x_{t-1} | x_t) for W = 2.

    Paper: Eq. 9 (`eq:proj-opertators`).   Holds for: any D_conv; the print has 2.
    """

    Pi_v_in: Float[Tensor, "P WT"]
    """what a window brings into the state: Ê_in itself, where there is one head"""
    Pi_v_out: Float[Tensor, "T P"]
    """from the state to the logits, Eᵀ P_out"""
    Pi_k_in: Float[Tensor, "N WT"]
    """where it is written, S_B Ê_in"""
    Pi_q_in: Float[Tensor, "N WT"]
    """where it is read, S_C Ê_in"""
    delay: int = 0
    """tokens between a fact and its writing; a window of two leaves no choice, wider ones do"""

    @property
    def size(self) -> int:
        """T, symbols of the space the operators act on."""
        return self.Pi_v_out.shape[0]

    @property
    def conv_width(self) -> int:
        """W, tokens in a window."""
        return self.Pi_v_in.shape[1] // self.size

    @property
    def value_operator(self) -> Float[Tensor, "T WT"]:
        """G_vv = Π_v,out Π_v,in.   Paper: Eq. 9 (`eq:proj-opertators`)."""
        return self.Pi_v_out @ self.Pi_v_in

    @property
    def match_operator(self) -> Float[Tensor, "WT WT"]:
        """G_kq = Π_k,inᵀ Π_q,in.   Paper: Eq. 9 (`eq:proj-opertators`)."""
        return self.Pi_k_in.T @ self.Pi_q_in

    @property
    def value_block(self) -> Float[Tensor, "T T"]:
        """The block of G_vv that the circuit uses: (logit, value).   Paper: Eq. 11 (`eq:Gvv-Gkq`)."""
        return self.Pi_v_out @ self.encoded_values

    @property
    def match_block(self) -> Float[Tensor, "T T"]:
        """The block of G_kq that the circuit uses: (key, query).   Paper: Eq. 11 (`eq:Gvv-Gkq`)."""
        return self.hashed_keys.T @ self.hashed_queries

    @property
    def encoded_values(self) -> Float[Tensor, "P T"]:
        """v' of every token: what it brings into the state as the value of a fact, the current token of its window.

        Paper: Eq. 13 (`eq:h-prime`).
        """
        return blocks(self.Pi_v_in, self.size)[-1 - self.delay]

    @property
    def hashed_keys(self) -> Float[Tensor, "N T"]:
        """k' of every token: where it sends what follows it; 0 where no window holds a previous token.

        Paper: Eq. 13 (`eq:h-prime`).
        """
        taps = blocks(self.Pi_k_in, self.size)
        return taps[-2 - self.delay] if len(taps) > 1 else torch.zeros_like(taps[-1])

    @property
    def hashed_queries(self) -> Float[Tensor, "N T"]:
        """q' of every token: where it looks.   Paper: Eq. 13 (`eq:h-prime`)."""
        return blocks(self.Pi_q_in, self.size)[-1]

    def restricted(self, tokens: Int[Tensor, " some"]) -> "Operators":
        """The same operators on some of the tokens, in the given order: for tables of a large vocabulary."""
        ins = (self.Pi_v_in, self.Pi_k_in, self.Pi_q_in)
        v_in, k_in, q_in = (torch.cat(list(blocks(part, self.size)[:, :, tokens]), dim=1) for part in ins)
        return Operators(v_in, self.Pi_v_out[tokens], k_in, q_in, self.delay)


def input_embedding(
    code: Float[Tensor, "D T"], P_in: Float[Tensor, "D_in D"], W_conv: Float[Tensor, "D_in W"]
) -> Float[Tensor, "D_in WT"]:
    """Ê_in = (diag(W⁰) P_in E | diag(W¹) P_in E | ...): x̂_t = Ê_in ξ_t.   Paper: Eq. 9 (`eq:proj-opertators`)."""
    embedded = P_in @ code
    return torch.cat([tap[:, None] * embedded for tap in W_conv.T], dim=1)


@dataclass(frozen=True)
class Attention:
    """One layer as attention: at t the heads read Σ_τ maps_τt values_τ, and hand on `out` of gate times that.

    Where a norm follows the gate, it is left out: it divides all sources by the same length.
    """

    maps: Float[Tensor, "batch #heads #P L L"]
    """weights (source τ, query t), 0 for τ > t; one map per head, or one per channel of a head"""
    values: Float[Tensor, "batch L #heads P"]
    """what each source offers"""
    out: Float[Tensor, "D heads P"]
    """from what the heads read to the residual stream"""
    gate: Float[Tensor, "batch L #heads #P"] | None = None
    """factor on what is read, at the place that reads"""


@dataclass(frozen=True)
class FactCodes:
    """What facts leave in the state of one layer: Σ over places of a value code times a key code, v' k'ᵀ.

    Paper: Eq. 13 (`eq:h-prime`); App. D.3 (`app-subsec:hidden-as-hash`).
    """

    values: Float[Tensor, "places V #heads P"]
    """v' of every token, for every place of a window that can hold a fact"""
    keys: Float[Tensor, "places V #heads N"]
    """k' of every token, likewise"""
    explained: float | None = None
    """share of the squared norm of the model's writes; None if the codes follow from the weights"""

    @staticmethod
    def averaged(
        x: Float[Tensor, "n #heads P"],
        k: Float[Tensor, "n #heads N"],
        keys: Int[Tensor, " n_k"],
        values: Int[Tensor, " n_v"],
    ) -> "FactCodes":
        """Value codes averaged over keys, and key codes over values, where a write x kᵀ is not v' k'ᵀ by construction.

        x and k are what is written at every pair of `keys` and `values`, keys outermost.
        """
        x, k = (part.unflatten(0, (len(keys), len(values))) for part in (x, k))
        V = int(max(keys.max(), values.max())) + 1
        v_code, k_code = x.new_zeros(V, *x.shape[2:]), k.new_zeros(V, *k.shape[2:])
        v_code[values], k_code[keys] = x.mean(dim=0), k.mean(dim=1)
        norm = (x.square().sum(-1) * k.square().sum(-1)).sum()
        cross = ((x * v_code[values]).sum(-1) * (k * k_code[keys][:, None]).sum(-1)).sum()
        factored = (v_code[values].square().sum(-1)[None] * k_code[keys].square().sum(-1)[:, None]).sum()
        return FactCodes(v_code[None], k_code[None], explained=float(1 - (norm - 2 * cross + factored) / norm))

    def writes(self, keys: Int[Tensor, " n"], values: Int[Tensor, " n"]) -> Float[Tensor, "n heads P N"]:
        """v' k'ᵀ of each fact."""
        v, k = self.values[:, values], self.keys[:, keys]
        return einsum(v, k, "places n heads P, places n heads N -> n heads P N")


@dataclass(frozen=True)
class Rates:
    """What every token does to the state it finds, as one number per head each."""

    written: Float[Tensor, "batch L heads"]
    """length of the key under which its value is written, gate included"""
    erased: Float[Tensor, "batch L heads"]
    """b of the delta rule: share of what stood under the key that is taken away; 0 where nothing is"""
    kept: Float[Tensor, "batch L heads"]
    """share of the whole state that does not fade, mean over its rows"""


@runtime_checkable
class HasState(Protocol):
    """Shows the memory that carries the context past a token."""

    def state_after(self, tokens: Int[Tensor, "batch L"]) -> tuple[Float[Tensor, "batch heads P N"], ...]:
        """The memory of every layer after the last of the tokens, one matrix per head."""
        ...


@runtime_checkable
class HasKeys(Protocol):
    """Shows the keys it writes under and the queries it reads with."""

    def keys_and_queries(
        self, tokens: Int[Tensor, "batch L"], layer: int = -1
    ) -> tuple[Float[Tensor, "batch L heads_k N"], Float[Tensor, "batch L heads_q N"]]:
        """B and C of every token; a head axis of 1 is shared by all heads."""
        ...


@runtime_checkable
class HasAttention(Protocol):
    """Can be written as attention: what is read is a weighted sum of what earlier tokens offered."""

    def attention(self, tokens: Int[Tensor, "batch L"], layer: int = -1) -> Attention:
        """One layer, exactly, decay included."""
        ...

    def logit_directions(self) -> Float[Tensor, "D V"]:
        """Direction in the residual stream that raises each token's logit; a last norm's length is left out."""
        ...


@runtime_checkable
class HasOperators(Protocol):
    """Is a few fixed matrices per head (Eq. 9), the same for every input."""

    residual: bool
    """whether each layer adds its input to its output"""

    def operators(self, symbols: Symbols = "tokens") -> tuple[tuple[Operators, ...], ...]:
        """The operators of every head of every layer, on tokens or on the axes of the residual stream."""
        ...

    def embed(self, tokens: Int[Tensor, "batch T"]) -> Float[Tensor, "batch T D"]:
        """The residual stream before the first layer."""
        ...

    def unembed(self, y: Float[Tensor, "batch T D"]) -> Float[Tensor, "batch T V"]:
        """Logits from the residual stream after the last layer."""
        ...


@runtime_checkable
class WritesFacts(Protocol):
    """Says what a fact leaves in its memory, and answers after the memory was edited."""

    def fact_codes(self) -> tuple[FactCodes, ...]:
        """The codes of facts in every layer."""
        ...

    def pair_writes(
        self, keys: Int[Tensor, " n"], values: Int[Tensor, " n"]
    ) -> tuple[Float[Tensor, "n heads P N"], ...] | None:
        """What the model itself writes at a value that follows a key; None where that depends on more than the pair."""
        ...

    def answer_edited(
        self,
        tokens: Int[Tensor, "batch L"],
        positions: Int[Tensor, "batch Q"],
        edits: tuple[Float[Tensor, "batch heads P N"], ...],
        *,
        after: int,
        since: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch Q V"]:
        """Logits at the positions, had the states been changed right after token `after` (-1: before the first).

        With `since`, the edits were written at these tokens, one per sequence, and have faded on the way to `after`.
        """
        ...


@runtime_checkable
class RevisesFacts(Protocol):
    """Writes a fact into a memory by its own rule, and takes it back."""

    def write_facts(
        self, state: Float[Tensor, "n heads P N"], keys: Int[Tensor, " n"], values: Int[Tensor, " n"]
    ) -> Float[Tensor, "n heads P N"]:
        """The memory after a fact was written into it."""
        ...

    def take_back(
        self, state: Float[Tensor, "n heads P N"], keys: Int[Tensor, " n"], values: Int[Tensor, " n"]
    ) -> tuple[Float[Tensor, "n heads P N"], Int[Tensor, "n heads"]]:
        """The memory before that fact, the latest one, and how many of its N dimensions cannot be brought back."""
        ...


@runtime_checkable
class HasRates(Protocol):
    """Writes, erases and keeps by one number each per head and token."""

    def rates(self, tokens: Int[Tensor, "batch L"], layer: int = -1) -> Rates:
        """The decisions of one layer."""
        ...


@runtime_checkable
class HasMasks(Protocol):
    """Weighs every channel of what it reads by a gate."""

    def memories(self, tokens: Int[Tensor, "batch L"]) -> tuple[Any, ...]:
        """What every layer writes and reads: `OuterProducts`, of which there is one here."""
        ...

    def logit_directions(self) -> Float[Tensor, "D V"]:
        """Direction in the residual stream that raises each token's logit; a last norm's length is left out."""
        ...

    def answer_changed(
        self, tokens: Int[Tensor, "batch L"], positions: Int[Tensor, "batch Q"], change: Callable[[Any], Any]
    ) -> Float[Tensor, "batch Q V"]:
        """Logits at the positions, had the memory written and read what `change` makes of its `OuterProducts`."""
        ...


@dataclass(frozen=True)
class Step:
    """The state of one layer right after a token, before the next one reads it."""

    layer: int
    t: int
    state: Float[Tensor, "batch #heads P N"]
    kept: Callable[[], Float[Tensor, "batch #heads"]]
    """share of the state's power that this token leaves: the mean square factor over directions of the state"""


Stored = tuple[Tensor, Tensor]
"""The state that goes on to the next token, and the one that is read at this one."""


@runtime_checkable
class StepsState(Protocol):
    """Carries a state of fixed size from token to token, and answers with another state stored on the way."""

    def answer_stored(
        self, tokens: Int[Tensor, "batch L"], positions: Int[Tensor, "batch Q"], store: Callable[[Step], Stored]
    ) -> Float[Tensor, "batch Q V"]:
        """Logits at the positions, with `store` called after every token of every layer, layer by layer."""
        ...


@runtime_checkable
class Continues(Protocol):
    """Reads a context once, and answers after it as often as it is asked."""

    def read_once(self, tokens: Int[Tensor, "batch L"]) -> tuple[dict[str, Tensor], ...]:
        """All that is left of the tokens, per layer: the state, and the last inputs that a window still sees."""
        ...

    def answer_after(
        self, kept: tuple[dict[str, Tensor], ...], tokens: Int[Tensor, "batch T"]
    ) -> Float[Tensor, "batch V"]:
        """Logits after more tokens; what was kept is left as it is."""
        ...


@runtime_checkable
class HasRotations(Protocol):
    """Can be rotated inside without changing what it computes."""

    def rotated(self, generator: torch.Generator, *, spread: float = 0.5) -> Any:
        """A copy with other weights that is the same function; every freedom is drawn at random."""
        ...


def why_not_by_pairs(num_layers: int, conv_width: int) -> str | None:
    """Why a write depends on more than a token and the one before; None if it does not."""
    if (num_layers, conv_width) == (1, 2):
        return None
    return (
        f"num_layers={num_layers}, conv_width={conv_width}: a write depends on one pair alone only in a single layer "
        f"with windows of two tokens (num_layers=1, conv_width=2)"
    )


def lack(name: str, protocol: type) -> str:
    """The sentence for a model without a capability."""
    does = (protocol.__doc__ or "").splitlines()[0].rstrip(".")
    return f"{name} does not offer {protocol.__name__}: a model that {does[:1].lower()}{does[1:]}"


@dataclass(frozen=True)
class Steps:
    """The memory of one layer while it reads some sequences, and what follows it in the layer."""

    empty: Float[Tensor, "batch #heads P N"]
    """the state before the first token"""
    length: int
    after: Callable[[Tensor, int], Float[Tensor, "batch #heads P N"]]
    """the state after token t, from the one before it"""
    read: Callable[[Tensor, int], Float[Tensor, "batch heads P_read"]]
    """what the heads read of a state at token t"""
    kept: Callable[[int], Float[Tensor, "batch #heads"]]
    """share of the state's power that token t leaves"""
    finish: Callable[[Tensor], Float[Tensor, "batch L D"]]
    """the layer's output, from what the heads read after every token"""

    def run(
        self, layer: int, store: Callable[[Step], Stored], asked: Container[int] | None = None
    ) -> Float[Tensor, "batch L D"]:
        """The layer with every state passed through `store`; nothing is read at tokens that are not `asked` about."""
        state, found, nothing = self.empty, [], self.read(self.empty, 0)
        for t in range(self.length):
            state, shown = store(Step(layer, t, self.after(state, t), partial(self.kept, t)))
            found.append(self.read(shown, t) if asked is None or t in asked else nothing)
        return self.finish(torch.stack(found, dim=1))

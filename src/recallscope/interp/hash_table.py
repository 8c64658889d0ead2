"""The state as a hash table: what it should hold (H), what it holds (H'), and what that means (H'').

H is a V x V table of ones where facts are. H' is the state as the output sees it, D x N numbers without a
visible pattern. Projected back to tokens on both sides it is H'', V x V again, and close to H.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from recallscope.architectures.capabilities import HasOperators
from recallscope.architectures.model import RecallModel
from recallscope.architectures.operators import Operators
from recallscope.interp.operators import operators_by_layer
from recallscope.interp.states import context_end, facts_at, states_at
from recallscope.tasks import Batch


@dataclass(frozen=True)
class HashTables:
    """The three tables after token t, one per sequence.   Paper: Tab. 4 (`tab:hidden_state_kv_dims`)."""

    ideal: Float[Tensor, "batch V V"]
    """H, rows values, columns keys"""
    hashed: Float[Tensor, "batch D N_all"]
    """H' = P_out h; heads and layers side by side"""
    decoded: Float[Tensor, "batch V V"]
    """H'', rows values, columns queries; at the model's own scale, see `strength`"""
    keys: Int[Tensor, "batch n"]
    """of the facts complete after t"""
    values: Int[Tensor, "batch n"]
    """of the same facts"""


def ideal_table(
    keys: Int[Tensor, "batch n"], values: Int[Tensor, "batch n"], vocab_size: int
) -> Float[Tensor, "batch V V"]:
    """H = Σ_n v_n k_nᵀ.

    Paper: Eq. 12 (`eq:h`).
    Departs: Alg. 2 prints k_nᵀ v_n, which is a number.
    """
    batch, V = len(keys), vocab_size
    table = torch.zeros(batch, V * V, device=keys.device)
    return table.scatter_(1, values * V + keys, 1.0).view(batch, V, V)


def invert_state(parts: Sequence[Operators], state: Float[Tensor, "batch M P N"]) -> Float[Tensor, "batch V WV"]:
    """h_inv = Π_v,out h Π_q,in, heads added up: the answer to every window one could ask with.

    Paper: Alg. 2 (`alg:hidden_state_inversion`).   Holds for: any rotation, any D_conv.
    Departs: it comes out V x 2V, not 2V x V. App. D.4 puts H' between the operators, whose shapes do not meet:
        it is h.
    """
    heads = state.expand(-1, len(parts), -1, -1)  # one state for all heads where values and keys are shared
    decoded = [part.Pi_v_out @ heads[:, h] @ part.Pi_q_in for h, part in enumerate(parts)]
    return torch.stack(decoded).sum(dim=0)


def decoded_table(parts: Sequence[Operators], state: Float[Tensor, "batch M P N"]) -> Float[Tensor, "batch V V"]:
    """H'' = h_inv (0; I_V): the answer to every token one could ask about.

    Paper: Eq. 14 (`eq:h-double-prime`), general form in Alg. 2 (`alg:hidden_state_inversion`).
    Departs: H'' is the right half of h_inv, so (0; I_V) stands to its right; printed to its left.
    """
    V = parts[0].size
    return invert_state(parts, state)[..., -V:]


def decoded_columns(
    parts: Sequence[Operators], state: Float[Tensor, "batch M P N"], asked: Int[Tensor, "batch n"]
) -> Float[Tensor, "batch V n"]:
    """The columns of H'' for the tokens asked, without the others.   Paper: Eq. 14 (`eq:h-double-prime`)."""
    heads = state.expand(-1, len(parts), -1, -1)
    columns = [part.Pi_v_out @ heads[:, h] @ part.hashed_queries.T[asked].mT for h, part in enumerate(parts)]
    return torch.stack(columns).sum(dim=0)


@torch.no_grad()
def hashed_table(model: RecallModel, states: Sequence[Float[Tensor, "batch M P N"]]) -> Float[Tensor, "batch D N_all"]:
    """H' = P_out h, from the state of every layer; heads and layers stand side by side.

    Paper: Eq. 13 (`eq:h-prime`), as defined in App. D.2 (`app-subsec:ssm-key-value-tables`).
    """
    tables = []
    for parts, state in zip(model.require(HasOperators).operators("stream"), states, strict=True):
        heads = state.expand(-1, len(parts), -1, -1)
        tables += [part.Pi_v_out @ heads[:, h] for h, part in enumerate(parts)]
    return torch.cat(tables, dim=-1)


@torch.no_grad()
def hash_tables(
    model: RecallModel, batch: Batch, t: int | None = None, *, tokens: Int[Tensor, " some"] | None = None
) -> HashTables:
    """H, H' and H'' after token t, or once the last fact is written. H has the facts that could be by then.

    With `tokens`, ascending and all of the facts' among them, only their rows and columns are decoded, and keys and
    values are counted by their places.

    Layers are decoded along their direct path, and added up (see `OperatorModel.operators`).

    Paper: Fig. 3 (`fig:reversing-hidden`), Alg. 2 (`alg:hidden_state_inversion`).
    """
    parts = operators_by_layer(model)
    if tokens is not None:
        parts = tuple(tuple(head.restricted(tokens) for head in heads) for heads in parts)
    delay = max(heads[0].delay for heads in parts)
    t = min(context_end(batch) + delay, batch.tokens.shape[1] - 1) if t is None else t
    states = states_at(model, batch.tokens, t)
    decoded = [decoded_table(heads, state) for heads, state in zip(parts, states, strict=True)]
    keys, values = facts_at(batch, t - delay)
    if tokens is not None:
        keys, values = (torch.searchsorted(tokens, some.contiguous()) for some in (keys, values))
    return HashTables(
        ideal=ideal_table(keys, values, parts[0][0].size),
        hashed=hashed_table(model, states),
        decoded=torch.stack(decoded).sum(dim=0),
        keys=keys,
        values=values,
    )

"""From a table of tokens to what the queries read: look up, convolve, write, match, read, and its gradient.

In a one-layer linear model everything between embedding and head acts on tokens through one table: what a token
adds, by tap of the
convolution, to key B (N), value u (D) and query C (N). What is read at query t is Σ_{τ <= t} u_τ (B_τ · C_t).

Two forms with the same arguments: tensor operations (`..._torch`, any device), and our C kernel, which has no
overhead per operation
and wins while sequences are short.
"""

import ctypes
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from recallscope.ops.compiled import address, call, fits, library

LONGEST = 256  # tokens; longer sequences are better served by torch's matrix products

SIZES = ("batch", "length", "asked", "width", "rows", "state", "value")
POINTERS = ("ids", "positions", "table", "y", "y_grad", "table_grad")


class RecallArguments(ctypes.Structure):
    """`recall_arguments` of csrc/arguments.h."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in SIZES),
        *((name, ctypes.c_void_p) for name in POINTERS),
    ]


class Lookup(NamedTuple):
    """Which row each token reads, where it is asked, and the table: tap j of the last row is the zero before the
    start."""

    ids: Int[Tensor, "batch L"]
    positions: Int[Tensor, "batch Q"]
    table: Float[Tensor, "D_conv rows R"]  # R = 2N + D: key, value, query
    state_dim: int


def table_recall(lookup: Lookup) -> Float[Tensor, "batch Q D"]:
    """What the queries read.   Paper: Eq. 4 (`eq:simple-ssm`) at the queries, Alg. 1 (`alg:mamba`)."""
    return _compiled(lookup) if _use_kernel(lookup) else table_recall_torch(lookup)


def table_recall_grad(lookup: Lookup, y_grad: Float[Tensor, "batch Q D"]) -> Float[Tensor, "D_conv rows R"]:
    """The gradient by the table, from the gradient by what was read."""
    return _compiled_grad(lookup, y_grad) if _use_kernel(lookup) else table_recall_grad_torch(lookup, y_grad)


def table_recall_torch(lookup: Lookup) -> Float[Tensor, "batch Q D"]:
    """In tensor operations: gathered rows, masked attention."""
    B, u, C = _gather(lookup)
    return torch.bmm(torch.bmm(C, B.mT).mul_(_seen(lookup)), u)


def table_recall_grad_torch(lookup: Lookup, y_grad: Float[Tensor, "batch Q D"]) -> Float[Tensor, "D_conv rows R"]:
    """The same backwards; keys, values and matches are computed again, which is cheaper than keeping them."""
    (batch, L), N = lookup.ids.shape, lookup.state_dim
    D_conv, rows, R = lookup.table.shape
    B, u, C = _gather(lookup)
    seen = _seen(lookup)
    alpha = torch.bmm(C, B.mT).mul_(seen)
    alpha_grad = torch.bmm(y_grad, u.mT).mul_(seen)
    grad = lookup.table.new_empty(batch, L, R)
    torch.bmm(alpha_grad.mT, C, out=grad[..., :N])
    torch.bmm(alpha.mT, y_grad, out=grad[..., N : R - N])
    grad[..., R - N :] = 0
    grad = grad.view(batch * L, R)
    grad[:, R - N :].index_add_(0, _flat_positions(lookup), torch.bmm(alpha_grad, B).flatten(0, 1))
    total = lookup.table.new_zeros(D_conv * (rows + 1), R)
    for ids in _tap_rows(lookup).T:
        total.index_add_(0, ids, grad)
    return total.view(D_conv, rows + 1, R)[:, :-1]


def _gather(lookup: Lookup) -> tuple[Tensor, Tensor, Tensor]:
    """B and u of every token, C where asked: one row per tap, added up."""
    (batch, L), Q, N = lookup.ids.shape, lookup.positions.shape[1], lookup.state_dim
    R = lookup.table.shape[2]
    padded = pad(lookup.table, (0, 0, 0, 1))  # a zero row per tap
    hashed = embedding_bag(_tap_rows(lookup), padded.flatten(0, 1), mode="sum")
    C = hashed[_flat_positions(lookup), R - N :].view(batch, Q, N)
    B, u, _ = hashed.view(batch, L, R).split((N, R - 2 * N, N), dim=-1)
    return B, u, C


def _tap_rows(lookup: Lookup) -> Int[Tensor, "tokens D_conv"]:
    """Where tap j finds what token t convolves: the row of token t-D_conv+1+j; before the start, the tap's zero row."""
    D_conv, rows, _ = lookup.table.shape
    windows = pad(lookup.ids, (D_conv - 1, 0), value=rows).unfold(1, D_conv, 1)  # batch L D_conv
    parts = torch.arange(0, D_conv * (rows + 1), rows + 1, device=lookup.ids.device)
    return (windows + parts).reshape(-1, D_conv)


def _seen(lookup: Lookup) -> Tensor:
    L = lookup.ids.shape[1]
    return torch.arange(L, device=lookup.ids.device) <= lookup.positions[..., None]  # batch Q L


def _flat_positions(lookup: Lookup) -> Int[Tensor, " queries"]:
    batch, L = lookup.ids.shape
    starts = torch.arange(0, batch * L, L, device=lookup.ids.device)
    return (lookup.positions + starts[:, None]).flatten()


def _use_kernel(lookup: Lookup) -> bool:
    return lookup.ids.shape[1] <= LONGEST and fits(lookup.table) and library() is not None


def _compiled(lookup: Lookup) -> Tensor:
    batch, Q = lookup.positions.shape
    y = lookup.table.new_empty(batch, Q, lookup.table.shape[2] - 2 * lookup.state_dim)
    arguments, _alive = _arguments(lookup)
    arguments.y = address(y)
    call("recall_forward", arguments, y.dtype)
    return y


def _compiled_grad(lookup: Lookup, y_grad: Tensor) -> Tensor:
    total, y_grad = torch.zeros_like(lookup.table), y_grad.contiguous()
    arguments, _alive = _arguments(lookup)
    arguments.y_grad, arguments.table_grad = address(y_grad), address(total)
    call("recall_backward", arguments, total.dtype)
    return total


def _arguments(lookup: Lookup) -> tuple[RecallArguments, list[Tensor]]:
    """Sizes and addresses, and the tensors that must outlive the call."""
    alive = [tensor.contiguous() for tensor in lookup[:3]]
    ids, positions, table = alive
    D_conv, rows, R = table.shape
    N = lookup.state_dim
    sizes = (*ids.shape, positions.shape[1], D_conv, rows, N, R - 2 * N)
    return RecallArguments(*sizes, address(ids), address(positions), address(table)), alive

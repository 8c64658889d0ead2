"""From rows of a table to what is read after every token, or where asked, by one head or several.

In a linear layer all that stands before the scan acts on each token alone, so a token is known by one row: what it
adds, by tap of the convolution, to keys B, values u and queries C. What is read at t is Σ_{τ <= t} u_τ (B_τ · C_t),
head by head. It may stand anywhere in a stack, and autograd goes through it.

Two forms with the same arguments: tensor operations (any device; masked attention, in chunks if long), and our C
kernel, which carries the state from token to token. It needs neither an L x L matrix nor the gathered rows.
"""

import ctypes
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding

from recallscope.ops.compiled import address, available, call, fields, fits, hand_over, operator, threads_for
from recallscope.ops.conv import add_taps
from recallscope.ops.head_patterns import HeadCounts, multi_head_read_at, multi_head_scan
from recallscope.ops.linear_scan import at_positions

ONE_HEAD = HeadCounts(x=1, B=1, C=1)


class TableScanArguments(ctypes.Structure):
    """`table_scan_arguments` of csrc/arguments.h."""

    _fields_ = fields(
        "batch length asked width rows state value heads B_heads x_heads C_heads threads list_from",
        "ids positions table y y_grad table_grad",
    )


class Reading(NamedTuple):
    """Which row each token has, where it is asked (everywhere, if None), and how the columns of a row are divided:
    keys (heads.B N), values (heads.x P), queries (heads.C N)."""

    ids: Int[Tensor, "batch L"] | None  # None: the rows are the tokens, sequence after sequence
    positions: Int[Tensor, "batch Q"] | None
    batch: int
    state_dim: int
    heads: HeadCounts = ONE_HEAD


def table_scan(table: Float[Tensor, "rows D_conv R"], reading: Reading) -> Float[Tensor, "batch Q M P"]:
    """What every head reads, by whichever form there is.

    Paper: Eq. 4 (`eq:simple-ssm`) after the convolution of Alg. 1 (`alg:mamba`); heads as in Alg. 4 (`alg:mamba-2`).
    """
    return table_scan_compiled(table, reading) if _use_kernel(table) else table_scan_torch(table, reading)


def table_scan_torch(table: Float[Tensor, "rows D_conv R"], reading: Reading) -> Float[Tensor, "batch Q M P"]:
    """In tensor operations: gathered rows, shifted by tap and added up, then masked attention.

    Paper: Eq. 4 (`eq:simple-ssm`).
    """
    (_, D_conv, R), N, heads, positions = table.shape, reading.state_dim, reading.heads, reading.positions
    flat = table.flatten(1)
    taps = flat.unflatten(0, (reading.batch, -1)) if reading.ids is None else embedding(reading.ids, flat)
    hashed = add_taps(taps.unflatten(-1, (D_conv, R)))
    values = R - (heads.B + heads.C) * N
    B, u, C = hashed.split((heads.B * N, values, heads.C * N), dim=-1)
    B, u = B.unflatten(-1, (heads.B, N)), u.unflatten(-1, (heads.x, -1))
    if positions is None:
        return multi_head_scan(u, B, C.unflatten(-1, (heads.C, N)))
    return multi_head_read_at(u, B, at_positions(C, positions).unflatten(-1, (heads.C, N)), positions)


def table_scan_compiled(table: Float[Tensor, "rows D_conv R"], reading: Reading) -> Float[Tensor, "batch Q M P"]:
    """By our C kernel.   Paper: Eq. 4 (`eq:simple-ssm`).   Holds for: first derivatives, float32 and float64, CPU."""
    ids, positions, batch, N, heads = reading
    y: Tensor = torch.ops.recallscope.table_scan(table, ids, positions, batch, N, *heads)
    return y


def _use_kernel(table: Tensor) -> bool:
    return fits(table) and available()


def _sizes(table: Tensor, reading: Reading) -> tuple[int, int, int]:
    """L, positions per sequence, and values per head."""
    (rows, _, R), heads = table.shape, reading.heads
    L = rows // reading.batch if reading.ids is None else reading.ids.shape[1]
    Q = L if reading.positions is None else reading.positions.shape[1]
    return L, Q, (R - (heads.B + heads.C) * reading.state_dim) // heads.x


def _arguments(table: Tensor, reading: Reading) -> tuple[TableScanArguments, list[Tensor]]:
    """Sizes and addresses, and the tensors that must outlive the call."""
    (rows, D_conv, R), N, heads, batch = table.shape, reading.state_dim, reading.heads, reading.batch
    L, Q, P = _sizes(table, reading)
    arguments = TableScanArguments(
        batch, L, Q, D_conv, rows, N, P, max(heads), heads.B, heads.x, heads.C, threads_for(batch * L * R * N)
    )
    return arguments, hand_over(arguments, ids=reading.ids, positions=reading.positions, table=table)


def _forward(table: Tensor, *inputs: Any) -> Tensor:
    arguments, _alive = _arguments(table, _reading(*inputs))
    y = _empty(table, *inputs)
    arguments.y = address(y)
    if y.numel():
        call("table_scan", arguments, y.dtype)
    return y


def _reading(ids: Tensor | None, positions: Tensor | None, batch: int, N: int, *heads: int) -> Reading:
    return Reading(ids, positions, batch, N, HeadCounts(*heads))


def _empty(table: Tensor, *inputs: Any) -> Tensor:
    reading = _reading(*inputs)
    _, Q, P = _sizes(table, reading)
    return table.new_empty(reading.batch, Q, max(reading.heads), P)


def _backward(table: Tensor, *inputs: Any) -> Tensor:
    """The gradient by the table."""
    y_grad, table_grad = inputs[-1].contiguous(), _zeros(table)
    arguments, _alive = _arguments(table, _reading(*inputs[:-1]))
    arguments.y_grad, arguments.table_grad = address(y_grad), address(table_grad)
    if y_grad.numel():  # where nothing is asked, nothing is learned
        call("table_scan", arguments, y_grad.dtype)
    return table_grad


def _zeros(table: Tensor, *_: Any) -> Tensor:
    return torch.zeros_like(table, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:3])
    ctx.sizes = inputs[3:]


def _gradients(ctx: Any, y_grad: Tensor) -> tuple[Tensor | None, ...]:
    table_grad = torch.ops.recallscope.table_scan_backward(*ctx.saved_tensors, *ctx.sizes, y_grad)
    return table_grad, *(None,) * (2 + len(ctx.sizes))


_INPUTS = "Tensor table, Tensor? ids, Tensor? positions, SymInt batch, SymInt state_dim, int x, int B, int C"
operator(f"table_scan({_INPUTS}) -> Tensor", _forward, _empty, _save, _gradients)
operator(f"table_scan_backward({_INPUTS}, Tensor y_grad) -> Tensor", _backward, _zeros)

"""From rows of a table to what every head reads: C kernel = tensor operations = the loops of Eq. 4 and Alg. 4."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import embedding

from closeness import assert_threads_change_no_bit, assert_twins, draw, output_and_gradients
from recallscope.ops.compiled import library
from recallscope.ops.head_patterns import HeadCounts, head_counts, multi_head_scan_loop
from recallscope.ops.linear_scan import CHUNK, at_positions
from recallscope.ops.table_scan import Reading, table_scan, table_scan_compiled, table_scan_torch

FORMS = {"torch": table_scan_torch, "by machine": table_scan}
if library() is not None:
    FORMS["compiled"] = table_scan_compiled
needs_compiler = pytest.mark.skipif(library() is None, reason="no C compiler here")
PATTERNS = ("MHA", "MQA", "MKA", "MVA")


def plain(table: Tensor, reading: Reading) -> Tensor:
    """Token by token and tap by tap, then head by head."""
    (_, D_conv, _), N, heads = table.shape, reading.state_dim, reading.heads
    if reading.ids is None:
        rows = table.unflatten(0, (reading.batch, -1))
    else:
        rows = embedding(reading.ids, table.flatten(1)).unflatten(-1, table.shape[1:])
    L = rows.shape[1]
    hashed = torch.stack(
        [sum(rows[:, t - ago, D_conv - 1 - ago] for ago in range(D_conv) if ago <= t) for t in range(L)], dim=1
    )
    B, u, C = hashed.tensor_split((heads.B * N, hashed.shape[-1] - heads.C * N), dim=-1)
    y = multi_head_scan_loop(*(v.unflatten(-1, (count, -1)) for v, count in zip((u, B, C), heads, strict=True)))
    if reading.positions is None:
        return y
    return at_positions(y.flatten(2), reading.positions).unflatten(-1, y.shape[-2:])


def setting(
    batch: int, L: int, Q: int, D_conv: int, rows: int, N: int, P: int, heads: HeadCounts, seed: int
) -> tuple[Tensor, Reading]:
    """Q = 0 asks everywhere, rows = 0 gives every token a row of its own."""
    g = torch.Generator().manual_seed(seed)
    table = draw(g, rows or batch * L, D_conv, (heads.B + heads.C) * N + heads.x * P)
    ids = torch.randint(rows, (batch, L), generator=g) if rows else None
    positions = torch.randint(L, (batch, Q), generator=g) if Q else None
    return table, Reading(ids, positions, batch, N, heads)


@pytest.mark.parametrize("form", FORMS)
@given(
    batch=st.integers(1, 3), L=st.integers(1, 12), Q=st.integers(0, 5), D_conv=st.integers(1, 4),
    rows=st.integers(0, 6), N=st.integers(1, 5), P=st.integers(1, 20), M=st.integers(1, 3),
    pattern=st.sampled_from(PATTERNS), seed=st.integers(0, 99),
)  # fmt: skip
def test_every_form_is_the_loop(form, batch, L, Q, D_conv, rows, N, P, M, pattern, seed):
    table, reading = setting(batch, L, Q, D_conv, rows, N, P, head_counts(pattern, M), seed)
    assert_twins(lambda table: FORMS[form](table, reading), lambda table: plain(table, reading), {"table": table})


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("P", [15, 16, 17, 32, 40, 48, 63, 64, 65, 130])
@pytest.mark.parametrize("Q", [0, 4])
def test_channels_need_not_fill_a_vector(form, P, Q):
    table, reading = setting(2, 9, Q, 2, 5, 3, P, HeadCounts(x=2, B=1, C=1), P)
    assert_twins(lambda table: FORMS[form](table, reading), lambda table: plain(table, reading), {"table": table})


@pytest.mark.parametrize("form", FORMS)
def test_sequences_longer_than_a_chunk(form):
    table, reading = setting(1, CHUNK + 3, 0, 2, 7, 2, 3, head_counts("MQA", 2), 0)
    assert_twins(lambda table: FORMS[form](table, reading), lambda table: plain(table, reading), {"table": table})


@pytest.mark.parametrize("form", FORMS)
def test_single_precision(form):
    table, reading = setting(4, 64, 32, 2, 128, 6, 64, HeadCounts(1, 1, 1), 0)
    fast, slow = (lambda table: FORMS[form](table, reading)), (lambda table: plain(table, reading))
    assert_twins(fast, slow, {"table": table / 8}, dtype=torch.float32)


@needs_compiler
@pytest.mark.parametrize("bad", [-1, 30])
def test_ids_and_positions_outside_are_refused(bad):
    table, reading = setting(2, 30, 2, 2, 30, 2, 3, HeadCounts(1, 1, 1), 0)
    ids, positions = reading.ids.clone(), reading.positions.clone()
    ids[1, 3] = bad
    positions[1, 0] = bad
    for wrong in (reading._replace(ids=ids), reading._replace(positions=positions)):
        with pytest.raises(IndexError, match="outside"):
            table_scan_compiled(table, wrong)


@needs_compiler
@pytest.mark.parametrize("rows", [0, 20])
def test_results_do_not_depend_on_the_number_of_threads(rows):
    """Bit for bit; the 40 sequences are enough work for a second thread."""
    table, reading = setting(40, 50, 0, 2, rows, 8, 40, head_counts("MVA", 2), 0)
    leaves = {"table": table.requires_grad_()}
    assert_threads_change_no_bit(lambda: output_and_gradients(table_scan_compiled(table, reading), leaves).values(), 2)


@needs_compiler
def test_bad_numbers_stay_in_their_own_sequence():
    table, reading = setting(3, 10, 0, 2, 0, 2, 5, head_counts("MHA", 2), 0)
    clean = table_scan_compiled(table, reading)
    table[12] = float("nan")
    spoilt = table_scan_compiled(table, reading)
    assert torch.equal(spoilt[[0, 2]], clean[[0, 2]])
    assert torch.equal(spoilt[1, :2], clean[1, :2])
    assert spoilt[1, 2:].isnan().all()

"""Pure functions on tensors; each fast form stands beside its plain twin, and a test holds them together."""

from recallscope.ops.attention import softmax_attention, softmax_attention_loop
from recallscope.ops.conv import add_taps, causal_conv, causal_conv_loop
from recallscope.ops.delta_scan import DeltaForm, delta_scan, delta_scan_loop, delta_scan_torch
from recallscope.ops.delta_scan_compiled import delta_scan_compiled
from recallscope.ops.head_patterns import (
    HeadCounts,
    aggregate,
    contract,
    deal,
    dealing_weight,
    head_counts,
    multi_head_read_at,
    multi_head_scan,
    multi_head_scan_loop,
    multi_head_states,
    split,
    stacking_weight,
)
from recallscope.ops.linear_scan import (
    at_positions,
    hidden_states,
    linear_scan,
    read_at,
    scan_loop,
)
from recallscope.ops.mesa import mesa_loop, mesa_scan
from recallscope.ops.selective_scan import (
    ScanForm,
    pick_form,
    selective_read_at,
    selective_scan,
    selective_scan_loop,
    selective_states_loop,
)
from recallscope.ops.selective_scan_compiled import selective_scan_compiled
from recallscope.ops.selective_scan_torch import selective_scan_torch
from recallscope.ops.ssd import ssd_loop, ssd_scan, ssd_states_loop
from recallscope.ops.table_scan import ONE_HEAD, Reading, table_scan, table_scan_compiled, table_scan_torch

__all__ = [
    "ONE_HEAD", "DeltaForm", "HeadCounts", "Reading", "ScanForm", "add_taps", "aggregate", "at_positions",
    "causal_conv", "causal_conv_loop", "contract", "deal", "dealing_weight", "delta_scan", "delta_scan_compiled",
    "delta_scan_loop", "delta_scan_torch", "head_counts", "hidden_states", "linear_scan", "mesa_loop", "mesa_scan",
    "multi_head_read_at", "multi_head_scan", "multi_head_scan_loop", "multi_head_states", "pick_form", "read_at",
    "scan_loop", "selective_read_at", "selective_scan", "selective_scan_compiled", "selective_scan_loop",
    "selective_scan_torch", "selective_states_loop", "softmax_attention", "softmax_attention_loop", "split",
    "ssd_loop", "ssd_scan", "ssd_states_loop", "stacking_weight", "table_scan", "table_scan_compiled",
    "table_scan_torch",
]  # fmt: skip

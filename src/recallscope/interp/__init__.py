"""Looking inside a model, designed or trained: its operators, hash table and attention, and what surgery does."""

from recallscope.interp.ablation import AblationScores, ablate_blocks, answer_ablated
from recallscope.interp.attention import (
    AttentionScores,
    Dominance,
    attention_map,
    copy_dominance,
    copy_map,
    ideal_attention,
    joint_attention,
    score_attention,
    shift_dominance,
    shift_map,
)
from recallscope.interp.block_masses import BlockMasses, block_masses
from recallscope.interp.closeness import NearestCircuit, circuit_closeness, nearest_circuit
from recallscope.interp.edits import answer_edited, fact_writes
from recallscope.interp.full2_probe import head_attention
from recallscope.interp.full_probe import (
    ProbeScores,
    ShiftScores,
    answer_attribution,
    attention_strength,
    attribution_hit_rate,
    implicit_attention,
    probe_facts,
    shift_test,
)
from recallscope.interp.full_surgery import FullOverwriteScores, overwrite_in_full
from recallscope.interp.hash_table import (
    HashTables,
    decoded_table,
    hash_tables,
    hashed_table,
    ideal_table,
    invert_state,
)
from recallscope.interp.inspection import inspect_model
from recallscope.interp.memory import Fact, HashMemory, Load, Recall
from recallscope.interp.operators import Operators, invariant_output, layer_operators, mean_diagonals, token_operators
from recallscope.interp.rotations import rotate_model
from recallscope.interp.scale import effective_operators, fix_scale, stack_operators, strength
from recallscope.interp.selectivity import (
    MeasuredCodes,
    Selectivity,
    VarianceCheck,
    check_variances,
    measure_codes,
    measure_selectivity,
)
from recallscope.interp.states import facts_at, states_at
from recallscope.interp.surgery import OverwriteScores, ProjectionScores, overwrite_facts, project_on_facts
from recallscope.interp.table_scores import FillCurve, TableScores, fill_curve, score_tables

__all__ = [
    "AblationScores",
    "AttentionScores",
    "BlockMasses",
    "Dominance",
    "Fact",
    "FillCurve",
    "FullOverwriteScores",
    "HashMemory",
    "HashTables",
    "Load",
    "MeasuredCodes",
    "NearestCircuit",
    "Operators",
    "OverwriteScores",
    "ProbeScores",
    "ProjectionScores",
    "Recall",
    "Selectivity",
    "ShiftScores",
    "TableScores",
    "VarianceCheck",
    "ablate_blocks",
    "answer_ablated",
    "answer_attribution",
    "answer_edited",
    "attention_map",
    "attention_strength",
    "attribution_hit_rate",
    "block_masses",
    "check_variances",
    "circuit_closeness",
    "copy_dominance",
    "copy_map",
    "decoded_table",
    "effective_operators",
    "fact_writes",
    "facts_at",
    "fill_curve",
    "fix_scale",
    "hash_tables",
    "hashed_table",
    "head_attention",
    "ideal_attention",
    "ideal_table",
    "implicit_attention",
    "inspect_model",
    "invariant_output",
    "invert_state",
    "joint_attention",
    "layer_operators",
    "mean_diagonals",
    "measure_codes",
    "measure_selectivity",
    "nearest_circuit",
    "overwrite_facts",
    "overwrite_in_full",
    "probe_facts",
    "project_on_facts",
    "rotate_model",
    "score_attention",
    "score_tables",
    "shift_dominance",
    "shift_map",
    "shift_test",
    "stack_operators",
    "states_at",
    "strength",
    "token_operators",
]

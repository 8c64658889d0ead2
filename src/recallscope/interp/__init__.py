"""Looking inside a model, designed or trained: its answers, operators, hash table and attention, and surgery on it.

Everything here works by capability (`recallscope.architectures.capabilities`), for any model that has it.
"""

from recallscope.lazy import lazy_names

_NAMES = {
    "ablation": "AblationScores ablate_blocks answer_ablated",
    "attention": "AttentionScores Dominance answer_attribution attention_map attention_strength attribution_hit_rate "
    "copy_dominance copy_map ideal_attention joint_attention score_attention shift_dominance shift_map",
    "behaviour": "Behaviour measure_behaviour",
    "closeness": "BlockMasses NearestCircuit block_masses circuit_closeness nearest_circuit",
    "hash_table": "HashTables decoded_table hash_tables hashed_table ideal_table invert_state",
    "inspection": "Inspection LeftOut inspect_model",
    "memory": "Fact HashMemory Load Recall",
    "operators": "effective_operators fix_scale invariant_output mean_diagonals operators_by_layer rotate_model "
    "stack_operators strength token_operators",
    "probes": "ProbeScores ShiftScores probe_facts shift_test",
    "selectivity": "MeasuredCodes Selectivity VarianceCheck check_variances measure_codes measure_selectivity",
    "states": "facts_at states_at",
    "surgery": "OverwriteScores ProjectionScores fact_writes overwrite_facts project_on_facts",
    "table_scores": "FillCurve TableScores fill_curve score_tables",
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)

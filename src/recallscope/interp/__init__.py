"""Looking inside a model, designed or trained: its answers, operators, hash table and attention, and surgery on it.

Everything here works by capability (`recallscope.architectures.capabilities`), for any model that has it.
"""

from recallscope.lazy import lazy_names

_NAMES = {
    "attention": "AttentionScores Dominance answer_attribution attention_map attention_strength attribution_hit_rate "
    "copy_dominance copy_map ideal_attention joint_attention picture_arrays score_attention shift_dominance shift_map",
    "banks": "BankScores MaskScores channel_masks measure_banks noise_budget picture_masks",
    "hash_table": "FillCurve HashTables TableScores decoded_table fill_curve hash_tables hashed_table ideal_table "
    "invert_state score_tables",
    "inspection": "Inspection LeftOut inspect_model",
    "memory": "Fact HashMemory Load Recall",
    "operators": "BlockMasses NearestCircuit block_masses circuit_closeness effective_operators fix_scale "
    "invariant_output mean_diagonals nearest_circuit operators_by_layer rotate_model stack_operators strength "
    "token_operators",
    "probes": "Behaviour ProbeScores ShiftScores measure_behaviour probe_facts shift_test",
    "rates": "PairRates RateScores measure_rates pair_kinds rates_by_pair",
    "selectivity": "MeasuredCodes Selectivity VarianceCheck check_variances measure_codes measure_selectivity",
    "states": "facts_at states_at",
    "surgery": "AblationScores OverwriteScores ProjectionScores ablate_blocks answer_ablated fact_writes "
    "overwrite_facts project_on_facts",
    "verdict": "describe",
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)

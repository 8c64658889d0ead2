"""Rem F.3: keys and values in different subspaces make the circuit blind to everything but key-value pairs."""

import pytest
import torch

from closeness import assert_near
from recallscope.circuits import selective_circuit
from recallscope.specs import TaskSpec
from recallscope.theory.law import find_law
from recallscope.train.evaluate import evaluate


def test_hard_split_ignores_every_pair_but_key_value_exactly():
    """Value logits of a sequence do not change when value-key and key-key neighbours do."""
    g = torch.Generator().manual_seed(0)
    model = selective_circuit(64, 24, 8, g, split="hard").double()
    facts = [(3, 40), (7, 50), (11, 60)]
    tail = [3]
    plain = [token for pair in facts for token in pair] + tail
    reordered = [token for pair in facts[::-1] for token in pair] + tail  # other value-key neighbours
    with_keys = [9, 5, 2, *plain]  # key-key neighbours, and a value-less key before the first fact
    said = [model(torch.tensor([tokens]))[0, -1, 32:] for tokens in (plain, reordered, with_keys)]
    assert_near(said[0], said[1])
    assert_near(said[0], said[2])


@pytest.mark.parametrize(("split", "law"), [("soft", "trained-t3"), ("hard", "trained-t4")])
@pytest.mark.parametrize(("kind", "D", "N"), [("ar", 32, 8), ("mqar", 32, 8), ("mqar", 48, 16), ("ar", 24, 12)])
def test_selective_circuits_score_what_their_law_predicts(split, law, kind, D, N):
    """20 draws of 100 sequences: within .03 (law .012 plus 3 standard errors of at most .006)."""
    task = TaskSpec(kind=kind, vocab_size=512, num_facts=16)
    g = torch.Generator().manual_seed(1)
    scores = []
    for _ in range(20):
        model = selective_circuit(512, D, N, g, split=split, kv_share=1 / 2 if kind == "ar" else 5 / 12)
        scores.append(evaluate(model, task, 100, g).accuracy)
    predicted = float(find_law(law)(vocab_size=512, num_facts=16, embed_dim=D, state_dim=N, task=kind))
    assert abs(sum(scores) / 20 - predicted) < 0.03


def test_a_split_that_leaves_no_room_for_values_is_refused():
    with pytest.raises(ValueError, match="state_dim < embed_dim"):
        selective_circuit(64, 8, 8, torch.Generator(), split="hard")
    assert selective_circuit(64, 8, 8, torch.Generator().manual_seed(0), split="soft").spec.state_dim == 8

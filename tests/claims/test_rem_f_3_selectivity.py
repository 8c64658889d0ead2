"""Rem F.3: keys and values in different subspaces make the circuit blind to everything but key-value pairs."""

import pytest
import torch

from closeness import assert_near
from recallscope.circuits.linear import selective_circuit
from recallscope.specs import parse_task
from recallscope.theory.laws.sharing import recall_given_variances, tight_variance
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


@pytest.mark.parametrize("split", ["soft", "hard"])
@pytest.mark.parametrize(("kind", "D", "N"), [("ar", 32, 8), ("mqar", 32, 8), ("mqar", 48, 16), ("ar", 24, 12)])
def test_selective_circuits_score_what_the_variances_of_their_codes_predict(split, kind, D, N):
    """20 draws of 100 sequences: within 0.05 (law 0.03 plus 3 standard errors of at most 0.006).

    Values put the share y of their squared norm into the N key dimensions, none of it if the split is hard.
    """
    V, r = 512, 1 / 2 if kind == "ar" else 5 / 12
    task = parse_task({"kind": kind, "vocab_size": V, "num_facts": 16})
    g = torch.Generator().manual_seed(1)
    scores = []
    for _ in range(20):
        model = selective_circuit(V, D, N, g, split=split, kv_share=r)
        scores.append(evaluate(model, task, 100, g).accuracy)
    y = 0.0 if split == "hard" else N * r / (N * r + D - N)
    predicted = recall_given_variances(
        vocab_size=V, num_facts=16, embed_dim=D, state_dim=N, task=kind,
        key_variance=tight_variance(1 / N, V // 2),
        value_variance=tight_variance(y**2 / N + (1 - y) ** 2 / (D - N), V // 2),
        leak=(y / N) ** 2,
    )  # fmt: skip
    assert abs(sum(scores) / 20 - float(predicted)) < 0.05


def test_a_split_that_leaves_no_room_for_values_is_refused():
    with pytest.raises(ValueError, match="state_dim < embed_dim"):
        selective_circuit(64, 8, 8, torch.Generator(), split="hard")
    assert selective_circuit(64, 8, 8, torch.Generator().manual_seed(0), split="soft").spec.state_dim == 8

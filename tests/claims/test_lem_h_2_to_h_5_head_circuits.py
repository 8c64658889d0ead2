"""Lem H.2-H.5: which single-head model each head pattern comes down to."""

import pytest
import torch

from closeness import assert_near
from recallscope.circuits.codes import hash_matrix, sphere_code
from recallscope.circuits.linear import compressive_circuit, head_circuit
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.tasks.drawing import sample_batch

V, D, N = 64, 12, 5


def codes(seed=0):
    g = torch.Generator().manual_seed(seed)
    return sphere_code(D, V, g), [hash_matrix(N, D, g) for _ in range(4)]


def logits(model):
    batch = sample_batch(MQARSpec(vocab_size=V, num_facts=6), 40, torch.Generator().manual_seed(9))
    with torch.no_grad():
        return model.double().answer(batch.tokens, batch.query_positions)


@pytest.mark.parametrize("expand", [1, 2])
@pytest.mark.parametrize("M", [1, 2, 3, 4])
def test_mva_equals_single_head_exactly(M, expand):
    E, hashes = codes()
    assert_near(logits(head_circuit("MVA", E, hashes[:M], expand=expand)), logits(compressive_circuit(E, hashes[0])))


@pytest.mark.parametrize("pattern", ["MQA", "MKA"])
@pytest.mark.parametrize(("M", "expand", "kept"), [(1, 1, 12), (2, 1, 6), (4, 1, 3), (2, 2, 12), (4, 2, 6), (3, 2, 8)])
def test_shared_values_equal_single_head_with_d_over_m(pattern, M, expand, kept):
    E, hashes = codes()
    squeezed = E.clone()
    squeezed[kept:] = 0
    shared = logits(head_circuit(pattern, E, [hashes[0]] * M, expand=expand))
    assert_near(shared, logits(compressive_circuit(squeezed, hashes[0])))


@pytest.mark.parametrize("expand", [1, 2])
def test_mha_with_equal_hashes_is_the_single_head(expand):
    E, hashes = codes()
    assert_near(
        logits(head_circuit("MHA", E, [hashes[0]] * 3, expand=expand)), logits(compressive_circuit(E, hashes[0]))
    )


def test_mha_with_different_hashes_matches_each_slice_with_its_own():
    E, hashes = codes()
    parts = []
    for h, F in enumerate(hashes[:3]):
        slice_only = compressive_circuit(E, F)
        with torch.no_grad():
            kept = torch.zeros(D)
            kept[4 * h : 4 * h + 4] = 1
            slice_only.layers[0].P_out.mul_(kept[:, None])
        parts.append(logits(slice_only))
    assert_near(logits(head_circuit("MHA", E, hashes[:3], expand=1)), sum(parts))


def test_different_hashes_cannot_be_shared():
    E, hashes = codes()
    with pytest.raises(ValueError, match="equal hashes"):
        head_circuit("MQA", E, hashes[:2])

"""zoology_batch repeats zoology's generator bit for bit; its numbers were recorded from the original."""

import hashlib

import numpy as np
import pytest
import torch

from recallscope.specs import parse_task
from recallscope.tasks.associative_recall import ARSpec, MQARSpec, RepeatedSpec
from recallscope.tasks.batch import Batch
from recallscope.tasks.correlated_keys import TemplateMQAR
from recallscope.tasks.zoology import zoology_batch


def fingerprint(batch: Batch) -> str:
    """First 16 hex digits of SHA-256 over the little-endian int64 bytes of inputs, then labels."""
    data = b"".join(part.numpy().astype("<i8").tobytes() for part in (batch.tokens, batch.targets))
    return hashlib.sha256(data).hexdigest()[:16]


@pytest.mark.parametrize(
    ("V", "n", "L", "N_f", "power_a", "seed", "without_filler", "with_filler"),
    [
        (128, 64, 64, 16, 0.01, 0, "3db18547e00a4719", "5379054dee920a9c"),
        (128, 64, 64, 4, 0.01, 7, "0ebb8197018c1b84", "fe7827f902b41c6c"),
        (8192, 32, 256, 16, 1.0, 123, "868a70ccf1550686", "8dfe754607409de5"),
    ],
)
def test_inputs_and_labels_are_the_original_ones(V, n, L, N_f, power_a, seed, without_filler, with_filler):
    """With filler, the original was run right after torch.manual_seed(99)."""
    task = MQARSpec(vocab_size=V, num_facts=N_f, length=L, power_a=power_a, filler="zero")
    assert fingerprint(zoology_batch(task, n, seed)) == without_filler
    filled = task.model_copy(update={"filler": "random"})
    assert fingerprint(zoology_batch(filled, n, seed, filler_seed=99)) == with_filler


@pytest.mark.parametrize(
    ("fields", "n", "seed", "without_filler", "with_filler"),
    [
        ({"kind": "forgetting_mqar", "vocab_size": 128, "num_facts": 8, "num_updates": 4, "length": 64,
          "power_a": 0.01}, 32, 0, "dd56a08ae162cbea", "022040eae940e65b"),
        ({"kind": "forgetting_mqar", "vocab_size": 512, "num_facts": 16, "num_updates": 16, "length": 100},
         16, 7, "a7570e727b14a502", "d09d57dc079462a3"),
        ({"kind": "compositional_mqar", "vocab_size": 128, "num_facts": 9, "length": 64, "power_a": 0.01},
         32, 0, "454e5fc0add6eca9", "c59583ccbef2519a"),
        ({"kind": "compositional_mqar", "vocab_size": 512, "num_facts": 16, "length": 200},
         16, 7, "1fd209d7b7fac0c8", "e771d835eadb7bf1"),
    ],
)  # fmt: skip
def test_so_are_those_of_its_other_tasks(fields, n, seed, without_filler, with_filler):
    """Zoology at commit d88d6f5; the filler again right after torch.manual_seed(99)."""
    assert fingerprint(zoology_batch(parse_task(fields | {"filler": "zero"}), n, seed)) == without_filler
    assert fingerprint(zoology_batch(parse_task(fields), n, seed, filler_seed=99)) == with_filler


def test_a_generator_of_our_own_has_the_stream_of_the_global_one():
    with torch.random.fork_rng():
        torch.manual_seed(99)
        from_the_global_stream = torch.randint(128, size=(64, 64))
    ours = torch.randint(128, (64, 64), generator=torch.Generator().manual_seed(99))
    assert torch.equal(ours, from_the_global_stream)


def test_ar_is_the_longer_task_cut_after_its_first_query():
    longer = zoology_batch(MQARSpec(vocab_size=128, num_facts=8), 16, seed=3, filler_seed=0)
    ar = zoology_batch(ARSpec(vocab_size=128, num_facts=8), 16, seed=3)
    assert torch.equal(ar.tokens, longer.tokens[:, :17])
    assert torch.equal(ar.targets, longer.targets[:, :17])
    assert torch.equal(ar.keys, longer.keys)
    assert torch.equal(ar.values, longer.values)


def test_the_filler_seed_changes_the_filler_only():
    task = MQARSpec(vocab_size=128, num_facts=4, length=64)
    one, other = (zoology_batch(task, 8, seed=0, filler_seed=seed) for seed in (1, 2))
    bare = zoology_batch(task.model_copy(update={"filler": "zero"}), 8, seed=0)
    assert torch.equal(one.targets, other.targets)
    assert not torch.equal(one.tokens, other.tokens)
    written = bare.tokens != 0
    assert torch.equal(one.tokens[written], bare.tokens[written])


@pytest.mark.parametrize(
    ("task", "way_out"),
    [
        (MQARSpec(vocab_size=64, num_facts=4, length=64), "vocab_size >= 66, or sample_batch"),
        (ARSpec(vocab_size=64, num_facts=16), "L = 4 N_f = 64.*vocab_size >= 66"),
        (RepeatedSpec(vocab_size=64, num_facts=4, key_repeats=2), "sample_batch, or kind='mqar'"),
        (TemplateMQAR(vocab_size=64, num_facts=4), "sample_batch, or kind='mqar'"),
        (MQARSpec(vocab_size=64, num_facts=4, filler="values"), "filler='random' or 'zero'"),
        (MQARSpec(vocab_size=64, num_facts=4), "needs filler_seed"),
    ],
)
def test_what_zoology_cannot_draw_is_refused_with_the_way_out(task, way_out):
    with pytest.raises(ValueError, match=way_out):
        zoology_batch(task, 2, seed=0)


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match="num_sequences >= 1"):
        zoology_batch(MQARSpec(vocab_size=64, num_facts=4, filler="zero"), 0, seed=0)


def test_the_smallest_length_above_the_vocabulary_is_named_rightly():
    """V > L with V even: for L = 64 that is 66, and 66 works."""
    batch = zoology_batch(MQARSpec(vocab_size=66, num_facts=4, length=64, filler="zero"), 2, seed=0)
    assert np.array_equal(batch.tokens.shape, (2, 64))

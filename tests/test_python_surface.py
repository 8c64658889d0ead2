"""What a notebook user types first: numpy numbers, seeds, public names without torch, paths as texts."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError

import recallscope as rs

SIZES = {"embed_dim": 8, "state_dim": 4}


def test_numpy_numbers_are_numbers():
    plain = rs.RunSpec(
        task=rs.MQARSpec(vocab_size=32, num_facts=3),
        model=rs.LinearMambaSpec(**SIZES, num_layers=2),
        train=rs.TrainSpec(batch_size=8, learning_rate=0.5),
        seed=3,
    )
    numpys = rs.RunSpec(
        task=rs.MQARSpec(vocab_size=np.int64(32), num_facts=np.uint8(3)),
        model={
            "kind": "linear_mamba",
            **{name: np.int16(size) for name, size in SIZES.items()},
            "num_layers": np.int64(2),
        },
        train=rs.TrainSpec(batch_size=np.int32(8), learning_rate=np.float32(0.5)),
        seed=np.int64(3),
    )
    assert numpys == plain
    assert numpys.content_hash() == plain.content_hash()
    assert numpys.canonical_json() == plain.canonical_json()
    assert type(numpys.train.learning_rate) is float


@pytest.mark.parametrize("size", [np.float64(8.0), np.float32(8.5), 8.0, np.True_, True, "8", np.array([8])])
def test_what_is_no_whole_number_is_still_refused(size):
    with pytest.raises(ValidationError):
        rs.LinearMambaSpec(embed_dim=size, state_dim=4)


def test_an_unknown_field_names_its_owner_or_the_nearest():
    with pytest.raises(ValidationError, match="linear_mamba has no field 'gate'; mamba has it"):
        rs.LinearMambaSpec(**SIZES, gate=True)
    with pytest.raises(ValidationError, match="Did you mean embed_dim"):
        rs.LinearMambaSpec(embed_dmi=8, state_dim=4)
    with pytest.raises(ValidationError, match="linear_mamba has no field 'batch_size'; training has it"):
        rs.LinearMambaSpec(**SIZES, batch_size=8)


def test_a_seed_stands_for_a_generator():
    task = rs.MQARSpec(vocab_size=32, num_facts=3)
    by_seed, again = rs.sample_batch(task, 10, 0), rs.sample_batch(task, 10, torch.Generator().manual_seed(0))
    assert torch.equal(by_seed.tokens, again.tokens)
    assert not torch.equal(by_seed.tokens, rs.sample_batch(task, 10, 1).tokens)
    model = rs.designed_circuit(vocab_size=32, embed_dim=16, state_dim=4, generator=torch.Generator().manual_seed(0))
    count = 2**15 // task.sequence_length + 500  # several draws: they must not be the same one
    generator = torch.Generator().manual_seed(5)
    assert rs.evaluate(model, task, count, 5) == rs.evaluate(model, task, count, generator)


def test_weights_are_read_by_path_or_text(tmp_path):
    from recallscope.train.weights import write_weights

    model = rs.designed_circuit(vocab_size=32, embed_dim=16, state_dim=4, generator=torch.Generator().manual_seed(0))
    write_weights(tmp_path / "w.safetensors", model, rs.MQARSpec(vocab_size=32, num_facts=3))
    assert rs.read_weights(tmp_path / "w.safetensors")[1] == rs.read_weights(str(tmp_path / "w.safetensors"))[1]

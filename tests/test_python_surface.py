"""What a notebook user types first: numpy numbers, seeds, public names without torch, paths as texts."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

import recallscope as rs
from made_records import made
from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.train.weights import write_weights

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
        model={"kind": "linear_mamba", "embed_dim": np.int16(8), "state_dim": np.int16(4), "num_layers": np.int64(2)},
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
    model = rs.designed_circuit(vocab_size=32, embed_dim=16, state_dim=4, generator=torch.Generator().manual_seed(0))
    write_weights(tmp_path / "w.safetensors", model, rs.MQARSpec(vocab_size=32, num_facts=3))
    assert rs.read_weights(tmp_path / "w.safetensors")[1] == rs.read_weights(str(tmp_path / "w.safetensors"))[1]


# In notebooks: grids are heat maps, everything is escaped

BAD = "<script>alert('&')</script>"


def parsed(thing) -> str:
    """The text of its HTML, which is well formed and has no element that was not meant."""
    root = ET.fromstring(f"<div>{thing._repr_html_()}</div>")
    assert {element.tag for element in root.iter()} <= {"div", "b", "table", "tr", "th", "td"}
    return " ".join(root.itertext())


def test_a_grid_is_a_heat_map():
    grid = AccuracyGrid.over({"embed_dim": (8, 16), "state_dim": (2, 4, 8)}, model="linear_mamba")
    grid.accuracy[:] = [[0.1, 0.25, 0.5], [0.75, 1.0, np.nan]]
    html = grid._repr_html_()
    assert html.count("background:rgb(") == 5  # nothing where nothing was measured
    assert "rgb(255,234,70);color:black" in html  # 1 is the lightest
    assert "0.250" in parsed(grid)
    assert "embed_dim \\ state_dim" in parsed(grid)
    parsed(AccuracyGrid.over({"embed_dim": (8, 16)}))
    assert "num_facts" in parsed(AccuracyGrid.over({"embed_dim": (8,), "state_dim": (2,), "num_facts": (4, 8)}))
    assert BAD in parsed(AccuracyGrid.over({BAD: (BAD,), "state_dim": (2,)}, model=BAD))


def test_laws_and_records_are_tables():
    law = replace(rs.find_law("trained-sharing"), summary=BAD)
    assert BAD in parsed(law)
    assert "trained-sharing" in parsed(law)
    run = rs.RunSpec(task=rs.MQARSpec(vocab_size=16, num_facts=2), model=rs.LinearMambaSpec(embed_dim=4, state_dim=2))
    record = made(run, 0.5, test_queries=4000)
    assert "test accuracy 0.5000 over 4,000 queries" in parsed(record)
    assert "embed_dim 4" in parsed(record)


def test_a_memory_shows_its_facts():
    generator = torch.Generator().manual_seed(0)
    memory = rs.HashMemory(rs.designed_circuit(vocab_size=64, embed_dim=32, state_dim=16, generator=generator))
    memory.store(7, 50)
    assert "key value score 7 50" in " ".join(parsed(memory).split())

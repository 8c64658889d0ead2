"""HTML in notebooks: grids are heat maps, everything is escaped."""

import xml.etree.ElementTree as ET
from dataclasses import replace

import numpy as np
import torch

import recallscope as rs
from recallscope.analysis.accuracy_grid import AccuracyGrid

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
    numbers = {
        "test_accuracy": 0.5,
        "val_accuracy": 0.5,
        "test_queries": 4000,
        "best_step": 1,
        "steps": 2,
        "seconds": 3.0,
    }
    record = rs.RunRecord(run=run.content_hash(), identity=run.identity(), spec=run, **numbers)
    assert "test accuracy 0.5000 over 4,000 queries" in parsed(record)
    assert "embed_dim 4" in parsed(record)


def test_a_memory_shows_its_facts():
    generator = torch.Generator().manual_seed(0)
    memory = rs.HashMemory(rs.designed_circuit(vocab_size=64, embed_dim=32, state_dim=16, generator=generator))
    memory.store(7, 50)
    assert "key value score 7 50" in " ".join(parsed(memory).split())

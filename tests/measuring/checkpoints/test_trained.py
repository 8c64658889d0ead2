"""Checkpoints that are really trained here, by the script behind results/probe: minutes each."""

import importlib.util
from pathlib import Path

import pytest
import torch

import recallscope as rs
from recallscope.measuring.checkpoints.checkpoint import load_checkpoint

SCRIPT = Path(__file__).parents[3] / "results" / "probe" / "make.py"


@pytest.mark.slow
def test_a_mamba_has_a_capacity_and_a_transformer_a_larger_one(tmp_path):
    """Two seeds of the probe agree within 15 %. Once trained, nothing is random but the words and contexts, whose
    bootstrap interval is about 5 % wide to either side: a false alarm is 1 in 10,000."""
    spec = importlib.util.spec_from_file_location("make_probe_models", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    found = {}
    for name, make in script.MAKE.items():
        make(tmp_path / name)
        model, tokenizer = load_checkpoint(tmp_path / name, torch.device("cpu"))
        found[name] = [rs.probe(model, tokenizer, num_sequences=16, seed=seed) for seed in (0, 1)]
    first, second = (record.n_50.num_facts for record in found["mamba"])
    assert abs(first / second - 1) < 0.15
    for record in found["transformer"]:
        half, largest = record.n_50, record.points[-1].num_facts
        assert (half.num_facts or (largest if half.reason.startswith(">") else 0)) > max(first, second)

"""A small store of made-up runs, the weights of one circuit, and the explorer over both."""

import pytest
import torch
from starlette.testclient import TestClient

from recallscope.architectures.linear import LinearSpec
from recallscope.circuits import designed_circuit
from recallscope.records import Evaluation, RunRecord
from recallscope.runs import RunStore
from recallscope.specs import RunSpec, TaskSpec
from recallscope.theory.law import find_law
from recallscope.train.weights import write_weights
from recallscope.web.server import make_app
from recallscope.web.shelf import Shelf

HOST = "127.0.0.1:8000"


def made_up(embed_dim, state_dim, seed=0):
    """A run whose accuracy is what a law says."""
    task, model = TaskSpec(vocab_size=512, num_facts=16), LinearSpec(embed_dim=embed_dim, state_dim=state_dim)
    p = float(find_law("unified-mv")(vocab_size=512, num_facts=16, embed_dim=embed_dim, state_dim=state_dim))
    spec = RunSpec(task=task, model=model, seed=seed)
    history = [Evaluation(step=250 * k, loss=4.0 / k, accuracy=p * k / 8) for k in range(1, 9)]
    return RunRecord(
        run=spec.content_hash(), spec=spec, test_accuracy=p, val_accuracy=p, test_queries=160_000, best_step=2000,
        steps=2000, seconds=8.25, state_entries=model.state_entries, history=history,
    )  # fmt: skip


@pytest.fixture(scope="session")
def shelf(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explore")
    store = RunStore(folder / "store", create=True)
    for D in (16, 32, 48, 64):
        for N in (4, 8, 16):
            store.put(made_up(D, N))
    model = designed_circuit(vocab_size=64, embed_dim=32, state_dim=16, generator=torch.Generator().manual_seed(0))
    weights = folder / "circuit" / "weights.safetensors"
    write_weights(weights, model, TaskSpec(vocab_size=64, num_facts=8))
    return Shelf([store], [weights])


@pytest.fixture(scope="session")
def app(shelf):
    return make_app(shelf, frozenset([HOST]))


@pytest.fixture(scope="session")
def client(app):
    with TestClient(app, base_url=f"http://{HOST}") as found:
        yield found

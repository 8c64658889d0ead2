"""A small store of made-up runs, the weights of one circuit, and the explorer over both."""

import pytest
import torch
from explored import HOST, made_up
from starlette.testclient import TestClient

from recallscope.circuits.linear import designed_circuit
from recallscope.runs.store import RunStore
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.train.weights import write_weights
from recallscope.web.server import make_app
from recallscope.web.store_set import StoreSet


@pytest.fixture(scope="session")
def store_set(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explore")
    store = RunStore(folder / "store", create=True)
    for D in (16, 32, 48, 64):
        for N in (4, 8, 16):
            store.put(made_up(D, N))
    model = designed_circuit(vocab_size=64, embed_dim=32, state_dim=16, generator=torch.Generator().manual_seed(0))
    weights = folder / "circuit" / "weights.safetensors"
    write_weights(weights, model, MQARSpec(vocab_size=64, num_facts=8))
    return StoreSet([store], [weights])


@pytest.fixture(scope="session")
def app(store_set):
    return make_app(store_set, frozenset([HOST]))


@pytest.fixture(scope="session")
def client(app):
    with TestClient(app, base_url=f"http://{HOST}") as found:
        yield found

"""Trained models, once for all processes of a session: nothing here changes them."""

import pytest
from subjects import TRAINED, quickly_trained

from recallscope.train.weights import read_weights, write_weights


def trained_once(name: str):
    @pytest.fixture(scope="session", name=name)
    def found(once):
        made = once(name, lambda folder: write_weights(folder / "w.safetensors", *quickly_trained(name)))
        return read_weights(made / "w.safetensors")[0]

    return found


trained, trained_wide, trained_heads, trained_deep, trained_full = map(trained_once, TRAINED)

"""Trained models, once per session: training takes a second or two, and nothing here changes them."""

import pytest
from subjects import quickly_trained, quickly_trained_full

from recallscope.architectures.layered import LayeredModel


@pytest.fixture(scope="session")
def trained() -> LayeredModel:
    return quickly_trained(kind="linear_mamba")


@pytest.fixture(scope="session")
def trained_wide() -> LayeredModel:
    return quickly_trained(kind="linear_mamba", conv_width=4)


@pytest.fixture(scope="session")
def trained_heads() -> LayeredModel:
    return quickly_trained(kind="multihead", state_dim=8, num_heads=2, head_pattern="MHA")


@pytest.fixture(scope="session")
def trained_deep() -> LayeredModel:
    return quickly_trained(kind="linear_mamba", state_dim=8, num_layers=2)


@pytest.fixture(scope="session")
def trained_full() -> LayeredModel:
    return quickly_trained_full()

"""The state is counted from outside, by what passes a cut of the sequence; what cannot be counted says why."""

import pytest
import torch
from torch import nn

from recallscope.architectures.model import build_model
from recallscope.architectures.user_module import user_module
from recallscope.measuring import state
from recallscope.measuring.state import measured_state, state_size
from recallscope.specs import parse_model

MODULES = '''
import torch
from torch import nn

class Recurrent(nn.Module):
    def __init__(self, vocab_size, width, layers=1, cell="GRU", embed=None):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed or width)
        self.cell = getattr(nn, cell)(embed or width, width, num_layers=layers, batch_first=True)
        self.head = nn.Linear(width, vocab_size)
    def forward(self, tokens):
        return self.head(self.cell(self.embedding(tokens))[0])

class Window(nn.Module):
    """A causal convolution of width 4: it sees three tokens back and remembers nothing."""
    def __init__(self, vocab_size):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, 6)
        self.conv, self.head = nn.Conv1d(6, 6, 4, padding=3), nn.Linear(6, vocab_size)
    def forward(self, tokens):
        return self.head(self.conv(self.embedding(tokens).mT)[..., :tokens.shape[1]].mT)

class Attention(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.embedding, self.head = nn.Embedding(vocab_size, 8), nn.Linear(8, vocab_size)
    def forward(self, tokens):
        x = self.embedding(tokens)
        return self.head(nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True))

class OneHot(Recurrent):
    def forward(self, tokens):
        E = self.embedding.weight
        x = nn.functional.one_hot(tokens, len(E)).to(E) @ E
        return self.head(self.cell(x)[0])

class Single(Recurrent):
    def forward(self, tokens):
        return super().forward(tokens).to(torch.float32)

class Fails(Recurrent):
    def forward(self, tokens):
        return super().forward(tokens) @ torch.ones(16, 16)
'''


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    path = tmp_path_factory.mktemp("modules") / "modules.py"
    path.write_text(MODULES)
    return lambda name, **arguments: build_model(user_module(f"{path}:{name}", **arguments), 16, generator())


def generator():
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize(
    ("arguments", "entries"),
    [
        ({"width": 8}, 8),
        ({"width": 40, "embed": 3}, 40),
        ({"width": 12, "layers": 2}, 24),
        ({"width": 12, "cell": "LSTM"}, 24),
        ({"width": 12, "cell": "RNN"}, 12),
    ],
)
def test_a_recurrent_net_has_its_width_per_layer(build, arguments, entries):
    """Two for an LSTM, which has two vectors. The embedding may be narrower than the state."""
    found = state_size(build("Recurrent", **arguments), generator())
    assert found.entries == entries
    assert found.bytes == 4 * entries
    assert found.how.startswith("measured")


def test_a_window_is_not_memory(build):
    assert state_size(build("Window"), generator()).entries == 0


def test_attention_has_no_state_of_fixed_size_and_it_is_said(build, monkeypatch):
    monkeypatch.setattr(state, "LARGEST_RANK", 256)  # as far as it is followed
    found = state_size(build("Attention"), generator())
    assert found.entries is None
    assert found.grows
    assert "grows with the context" in found.how
    assert found.ranks[1][1] == 2 * found.ranks[0][1]


@pytest.mark.parametrize(
    ("name", "why"),
    [("OneHot", "no torch.nn.Embedding"), ("Single", "logits are torch.float32"), ("Fails", "fails in float64")],
)
def test_what_cannot_be_measured_says_why(build, name, why):
    found = state_size(build(name, width=4), generator())
    assert found.entries is None
    assert found.how.startswith("not measured: ")
    assert why in found.how


@pytest.mark.parametrize(
    ("spec", "read"),
    [
        ({"kind": "linear_mamba", "embed_dim": 6, "state_dim": 3}, 18),
        ({"kind": "multihead", "embed_dim": 8, "state_dim": 2, "num_heads": 2, "head_pattern": "MHA"}, 32),
        ({"kind": "mamba", "embed_dim": 6, "state_dim": 3}, 36),
        ({"kind": "mamba2", "embed_dim": 8, "state_dim": 3, "num_heads": 2}, 48),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_our_own_models_declare_what_is_measured_or_more(spec, read):
    """A linear Mamba stores 2 D N numbers, and its output reads D N of them; the others read all that they store."""
    model = build_model(parse_model(spec), 32, generator())
    declared = state_size(model, generator())
    assert declared.how.startswith("declared")
    assert measured_state(model, generator()).entries == read
    assert declared.entries in (read, 2 * read)


def test_a_module_that_shows_its_state_is_believed(tmp_path):
    text = MODULES.replace("class Window", "class Shows(Recurrent):\n    def state_after(self, tokens):\n"
                           "        return (torch.zeros(len(tokens), 1, 5, 2),)\n\nclass Window")  # fmt: skip
    (tmp_path / "shows.py").write_text(text)
    model = build_model(user_module(f"{tmp_path}/shows.py:Shows", width=4), 16, generator())
    assert state_size(model, generator()).entries == 10


def test_the_model_is_left_as_it_was(build):
    model = build("Recurrent", width=4).train()
    before = [weight.clone() for weight in model.parameters()]
    state_size(model, generator())
    assert model.training
    for old, new in zip(before, model.parameters(), strict=True):
        assert torch.equal(old, new)
        assert new.grad is None
    assert isinstance(model.module.embedding, nn.Embedding)

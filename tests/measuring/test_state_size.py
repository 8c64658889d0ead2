"""The state is counted from outside, by what passes a cut of the sequence; what cannot be counted says why."""

import pytest
import torch
from torch import nn

from recallscope.architectures.model import build_model
from recallscope.architectures.user_module import user_module
from recallscope.measuring import state
from recallscope.measuring.state import state_size
from recallscope.specs import find_architecture, parse_model

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
    assert "it grows with the context, as attention's, or is larger than could be followed" in found.how
    assert found.ranks[1][1] == 2 * found.ranks[0][1]
    assert found.per_token == 8, "as many as the embedding is wide"


def test_a_model_of_few_positions_is_followed_as_far_as_it_goes(tmp_path):
    text = MODULES.replace(
        "x = self.embedding(tokens)\n        return self.head(nn.f",
        "assert tokens.shape[1] <= 64\n        x = self.embedding(tokens)\n        return self.head(nn.f",
    )
    (tmp_path / "short.py").write_text(text)
    found = state_size(build_model(user_module(f"{tmp_path}/short.py:Attention"), 16, generator()), generator())
    assert (found.per_token, "up to 32 tokens" in found.how) == (8, True)


@pytest.mark.parametrize(
    ("name", "why"),
    [("OneHot", "no torch.nn.Embedding"), ("Single", "logits are torch.float32"), ("Fails", "fails in float64")],
)
def test_what_cannot_be_measured_says_why(build, name, why):
    found = state_size(build(name, width=4), generator())
    assert found.entries is None
    assert found.how.startswith("not measured: ")
    assert why in found.how


SIZES = {"embed_dim": 6, "state_dim": 3}
OURS = [
    *({"kind": "linear_mamba", **SIZES, "num_layers": layers} for layers in (1, 2)),
    {"kind": "multihead", "embed_dim": 8, "state_dim": 2, "num_heads": 2, "head_pattern": "MHA"},
    {"kind": "mamba", **SIZES},
    {"kind": "mamba2", "embed_dim": 8, "state_dim": 3, "num_heads": 2},
    *({"kind": kind, **SIZES} for kind in ("linear_attention", "retnet", "gla", "mlstm", "delta_net")),
    *({"kind": kind, **SIZES} for kind in ("gated_delta_net", "kda", "rwkv7", "mesa_net")),
    *(
        {**find_architecture(kind).PUBLISHED, "kind": kind, "embed_dim": 8, "state_dim": 4, "num_layers": 2}
        for kind in ("gla", "rwkv7", "delta_net", "gated_delta_net")
    ),
]


@pytest.mark.parametrize("spec", OURS, ids=lambda spec: f"{spec['kind']}-{spec.get('num_layers', 1)}")
def test_our_own_models_are_measured_as_any_other_and_their_formula_is_what_is_measured(spec):
    """Linear Mambas store 2 D N numbers a layer and read D N; convolutions of width 4 in two layers count no window."""
    model = build_model(parse_model(spec), 32, generator())
    found = state_size(model, generator())
    assert found.how.startswith("measured")
    assert found.entries == model.spec.effective_entries
    assert found.stored == model.spec.state_entries == (2 if spec["kind"] == "linear_mamba" else 1) * found.entries


def test_what_a_module_shows_as_its_state_is_what_it_stores(tmp_path):
    text = MODULES.replace("class Window", "class Shows(Recurrent):\n    def state_after(self, tokens):\n"
                           "        return (torch.zeros(len(tokens), 1, 5, 2),)\n\nclass Window")  # fmt: skip
    (tmp_path / "shows.py").write_text(text)
    model = build_model(user_module(f"{tmp_path}/shows.py:Shows", width=4), 16, generator())
    found = state_size(model, generator())
    assert (found.entries, found.stored, found.bytes) == (4, 10, 40)


def test_the_model_is_left_as_it_was(build):
    model = build("Recurrent", width=4).train()
    before = [weight.clone() for weight in model.parameters()]
    state_size(model, generator())
    assert model.training
    for old, new in zip(before, model.parameters(), strict=True):
        assert torch.equal(old, new)
        assert new.grad is None
    assert isinstance(model.module.embedding, nn.Embedding)

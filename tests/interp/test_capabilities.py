"""Models nobody here has readout of: what they can show is shown as it is, and the rest is left out with a reason."""

import pytest
import torch
from subjects import SMALL, seeded

from closeness import assert_near
from recallscope.architectures.capabilities import (
    Attention,
    HasAttention,
    HasKeys,
    HasOperators,
    HasRotations,
    HasState,
    WritesFacts,
)
from recallscope.architectures.mamba import LinearMambaSpec, Mamba2Spec, MambaSpec, MultiHeadSpec
from recallscope.architectures.model import MissingCapabilityError, RecallModel, build_model
from recallscope.interp.attention import answer_attribution, attention_strength
from recallscope.interp.inspection import inspect_model
from recallscope.interp.memory import HashMemory
from recallscope.interp.operators import rotate_model, token_operators
from recallscope.interp.states import states_at
from recallscope.specs import ModelSpec
from recallscope.tasks.drawing import sample_batch

WIDTH, SIZE = 6, 5


class DeltaRule(RecallModel):
    """S_t = S_{t-1} (1 - β k kᵀ) + β v kᵀ: what it writes depends on what is there already."""

    def __init__(self, vocab_size):
        super().__init__(ModelSpec(), vocab_size)
        self.values, self.keys, self.queries = (torch.nn.Embedding(vocab_size, d) for d in (WIDTH, SIZE, SIZE))
        self.head = torch.nn.Linear(WIDTH, vocab_size)

    def walk(self, tokens):
        state, states = torch.zeros(len(tokens), WIDTH, SIZE), []
        for t in range(tokens.shape[1]):
            v, k = self.values(tokens[:, t]), self.keys(tokens[:, t])
            k = k / k.norm(dim=-1, keepdim=True)
            state = state + 0.7 * (v - (state @ k[..., None])[..., 0])[..., None] * k[:, None]
            states.append(state)
        return torch.stack(states, dim=1)

    def forward(self, tokens):
        return self.head(torch.einsum("blpn,bln->blp", self.walk(tokens), self.queries(tokens)))

    def draw_weights(self, generator, *, embedding_std=1.0):
        with torch.no_grad():
            for weight in self.parameters():
                weight.normal_(generator=generator)

    def state_after(self, tokens):
        return (self.walk(tokens)[:, -1, None].detach(),)

    def keys_and_queries(self, tokens, layer=-1):
        return self.keys(tokens)[:, :, None].detach(), self.queries(tokens)[:, :, None].detach()


class Softmax(RecallModel):
    """One layer of causal softmax attention: maps, and no state at all."""

    def __init__(self, vocab_size):
        super().__init__(ModelSpec(), vocab_size)
        self.E = torch.nn.Embedding(vocab_size, WIDTH)

    def maps(self, x):
        return (x @ x.mT).masked_fill(torch.ones(x.shape[1], x.shape[1]).triu(1).bool(), -torch.inf).softmax(-1).mT

    def forward(self, tokens):
        x = self.E(tokens)
        return self.maps(x).mT @ x @ self.E.weight.T

    def draw_weights(self, generator, *, embedding_std=1.0):
        with torch.no_grad():
            self.E.weight.normal_(generator=generator)

    def attention(self, tokens, layer=-1):
        x = self.E(tokens).detach()
        return Attention(self.maps(x)[:, None, None], x[:, :, None], torch.eye(WIDTH)[:, None])

    def logit_directions(self):
        return self.E.weight.T.detach()


class Mute(DeltaRule):
    """Answers, and shows nothing."""

    state_after = keys_and_queries = None


def drawn(model_class, vocab_size=64):
    model = model_class(vocab_size)
    model.draw_weights(seeded())
    return model


def test_the_state_of_a_delta_rule_is_its_own_and_not_a_sum_of_outer_products():
    model, tokens = drawn(DeltaRule), sample_batch(SMALL, 3, seeded(1)).tokens
    everything = model.walk(tokens)
    for t in (0, 6):
        (state,) = states_at(model, tokens, t)
        assert_near(state[:, 0], everything[:, t])
    k = model.keys(tokens[:, :7])
    naive = torch.einsum("blp,bln->bpn", model.values(tokens[:, :7]), k / k.norm(dim=-1, keepdim=True))
    assert not torch.allclose(everything[:, 6], naive, atol=0.1)


def test_a_delta_rule_is_inspected_by_what_it_shows():
    found = inspect_model(drawn(DeltaRule), SMALL, seeded(1), num_sequences=20)
    assert found.probe is not None
    assert found.shift_test is not None
    assert found.operators is found.overwrite is found.attribution_hit_rate is None
    whys = {item.section: item.why for item in found.left_out}
    assert whys["overwrite"] == (
        "DeltaRule does not offer WritesFacts: a model that says what a fact leaves in its memory, and answers after "
        "the memory was edited."
    )
    assert "HasOperators" in whys["table"]


def test_softmax_attention_has_maps_and_no_state():
    model, batch = drawn(Softmax), sample_batch(SMALL, 4, seeded(1))
    strength = attention_strength(model, batch.tokens)
    assert float(strength.tril(-1).abs().max()) == 0
    logits = model(batch.tokens).gather(1, batch.query_positions[..., None].expand(-1, -1, 64))
    wanted = logits.gather(2, batch.answers[..., None])[..., 0].detach()
    assert_near(answer_attribution(model, batch).sum(dim=-1), wanted)
    found = inspect_model(model, SMALL, seeded(1), num_sequences=4)
    assert found.attribution_hit_rate is not None
    assert found.probe is None
    with pytest.raises(MissingCapabilityError, match="HasState"):
        states_at(model, batch.tokens, 3)


def test_a_model_without_capabilities_is_seen_by_its_answers():
    model = drawn(Mute)
    found = inspect_model(model, SMALL, seeded(1), num_sequences=10)
    assert found.behaviour.queries == 40
    shown = {name for name, section in found.to_dict().items() if section is not None}
    assert shown == {"behaviour", "left_out"}
    assert all(item.why.endswith(".") for item in found.left_out)
    for ask in (token_operators, HashMemory, lambda m: rotate_model(m, seeded())):
        with pytest.raises(MissingCapabilityError, match="Mute does not offer"):
            ask(model)


def test_inspecting_leaves_the_mode_of_the_model_alone():
    model = drawn(Mute)
    for training in (True, False):
        model.train(training)
        inspect_model(model, SMALL, seeded(1), num_sequences=2)
        assert model.training is training


ALL = (HasState, HasKeys, HasAttention, HasOperators, WritesFacts, HasRotations)


@pytest.mark.parametrize(
    ("spec", "lacks"),
    [
        (LinearMambaSpec(embed_dim=6, state_dim=3), ()),
        (LinearMambaSpec(embed_dim=6, state_dim=3, conv_width=1), (WritesFacts,)),
        (MultiHeadSpec(embed_dim=6, state_dim=3, num_heads=2, head_pattern="MQA"), ()),
        (MambaSpec(embed_dim=6, state_dim=3), (HasOperators, HasRotations)),
        (MambaSpec(embed_dim=6, state_dim=3, num_layers=2), (HasOperators, HasRotations, WritesFacts)),
        (Mamba2Spec(embed_dim=6, state_dim=3, num_heads=2), (HasOperators, HasRotations)),
    ],
    ids=["linear", "narrow", "multihead", "full", "full-deep", "full2"],
)
def test_what_our_own_models_can_do(spec, lacks):
    model = build_model(spec, 12, seeded())
    for protocol in ALL:
        assert (model.capability(protocol) is None) == (protocol in lacks) == (model.why_not(protocol) is not None)

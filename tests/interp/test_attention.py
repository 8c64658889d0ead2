"""Models as attention: maps, decay included, that explain ŷ; and what every source adds to the answer."""

import pytest
import torch
from subjects import FULL_TASK, SMALL
from transformers import Mamba2Config, Mamba2ForCausalLM

from closeness import assert_near, seeded
from recallscope.architectures.mamba import LinearMambaSpec, Mamba2Spec, MambaSpec, MultiHeadSpec
from recallscope.architectures.mamba2_model import Mamba2
from recallscope.architectures.model import build_model
from recallscope.architectures.pretrained import from_pretrained
from recallscope.interp.attention import answer_attribution, attention_map, attention_strength, attribution_hit_rate
from recallscope.interp.states import states_at
from recallscope.ops.linear_scan import at_positions
from recallscope.specs import HeadPattern
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.tasks.drawing import sample_batch

V = 20


def draw_tokens() -> torch.Tensor:
    return torch.randint(0, V, (2, 13), generator=torch.Generator().manual_seed(1))


def build(pattern: HeadPattern = "MVA") -> Mamba2:
    spec = Mamba2Spec(embed_dim=12, state_dim=4, num_heads=3, head_pattern=pattern, num_layers=2, conv_width=4)
    return build_model(spec, V, torch.Generator().manual_seed(0), dtype=torch.float64)


def assert_adds_up(parts: torch.Tensor, whole: torch.Tensor) -> None:
    assert_near(parts.sum(dim=-1), whole, terms=parts.abs().sum(dim=-1))


def assert_explained(model: Mamba2, tokens: torch.Tensor, layer: int) -> None:
    """ŷ = Σ_τ α_τt x̂_τ + skip."""
    trace, skip = model.trace(tokens).layers[layer], model.layers[layer].mixer.D
    x_heads = trace.x_heads.expand(-1, -1, len(skip), -1)
    readout = torch.einsum("bmst,bsmp->btmp", attention_map(model, tokens, layer=layer), x_heads)
    assert_near(trace.y_heads, readout + skip[:, None] * x_heads)


@pytest.mark.parametrize("layer", [0, -1])
@pytest.mark.parametrize("pattern", ["MHA", "MQA", "MKA", "MVA"])
def test_what_a_head_says_is_its_map_times_its_values(pattern: HeadPattern, layer: int) -> None:
    assert_explained(build(pattern), draw_tokens(), layer)


@pytest.mark.parametrize("pattern", ["MHA", "MQA", "MKA", "MVA"])
def test_what_all_sources_add_is_what_the_answer_gets(pattern: HeadPattern) -> None:
    """Summed over the sources, attribution is ŷ without the skip, gated, along the right answer; norms aside."""
    model = build(pattern)
    batch = sample_batch(MQARSpec(vocab_size=V, num_facts=3), 2, torch.Generator().manual_seed(0))
    trace, mixer = model.trace(batch.tokens).layers[-1], model.layers[-1].mixer
    skipped = mixer.D[:, None] * trace.x_heads
    said, as_large = (heads.flatten(2) * trace.gate * mixer.norm.weight for heads in (trace.y_heads - skipped, skipped))
    towards = (model.E.T[batch.answers] * model.norm_f.weight) @ mixer.out_proj.weight
    rows = torch.arange(2)[:, None]
    expected = (said[rows, batch.query_positions] * towards).sum(dim=-1)
    terms = (as_large[rows, batch.query_positions] * towards).abs().sum(dim=-1)  # the skip, which was taken away again
    assert_near(answer_attribution(model, batch).sum(dim=-1), expected, terms=terms)


def test_strength_is_the_length_of_what_a_source_adds() -> None:
    model, tokens = build(), draw_tokens()
    strength = attention_strength(model, tokens)
    assert strength.shape == (2, 13, 13)
    assert (strength.tril(-1) == 0).all()  # nothing hears what comes later
    assert (strength.diagonal(dim1=1, dim2=2) > 0).all()


def test_states_have_faded() -> None:
    """The state after token t is the trace's, not the undecayed sum of writes."""
    model, tokens = build(), draw_tokens()
    everything = model.trace(tokens, states=True)
    for t in (0, 7):
        for found, layer in zip(states_at(model, tokens, t), everything.layers, strict=True):
            assert_near(found, layer.h[:, t])


def test_attributions_add_up_to_the_logit():
    """Over all sources, plus skip and residual: the logit of the answer, times the length the norm divides by."""
    model = build_model(MambaSpec(embed_dim=6, state_dim=4, skip=False), 32, seeded(), dtype=torch.float64)
    batch = sample_batch(FULL_TASK, 3, seeded(1))
    parts = answer_attribution(model, batch)
    trace = model.trace(batch.tokens)
    y = trace.layers[-1].y
    length = (y.square().mean(dim=-1) + 1e-5).sqrt().gather(1, batch.query_positions)
    logits = trace.logits.gather(1, batch.query_positions[..., None].expand(-1, -1, 32))
    logit = logits.gather(2, batch.answers[..., None])[..., 0] * length
    asked = batch.tokens.gather(1, batch.query_positions)
    residual = torch.einsum("dbq,dbq->bq", model.E[:, batch.answers], model.E[:, asked])
    assert_adds_up(torch.cat((parts, residual[..., None]), dim=-1), logit)


def test_the_right_place_is_attended_to(trained_full):
    batch = sample_batch(FULL_TASK, 60, seeded(1))
    assert attribution_hit_rate(trained_full, batch) >= 0.95
    strength = attention_strength(trained_full, batch.tokens)
    assert strength.shape == (60, 12, 12)
    assert float(strength.tril(-1).abs().max()) == 0  # nothing comes from the future


@pytest.mark.parametrize(
    "spec",
    [
        LinearMambaSpec(embed_dim=6, state_dim=3),
        *(MultiHeadSpec(embed_dim=6, state_dim=3, num_heads=2, head_pattern=p) for p in ("MHA", "MQA", "MKA", "MVA")),
    ],
    ids=lambda spec: getattr(spec, "head_pattern", spec.kind),
)
def test_attributions_of_a_linear_model_add_up_to_the_logit(spec):
    """No skip, no norm, no residual: all that raises the answer comes from the sources."""
    model = build_model(spec, 64, seeded(), dtype=torch.float64)
    batch = sample_batch(SMALL, 3, seeded(1))
    logits = at_positions(model(batch.tokens), batch.query_positions)
    wanted = logits.gather(2, batch.answers[..., None])[..., 0].detach()
    assert_adds_up(answer_attribution(model, batch), wanted)


def test_a_head_of_its_own_weights_is_where_the_answer_is_read(tmp_path):
    """A checkpoint whose head is not tied: attribution is along that head, not along the embedding."""
    config = Mamba2Config(
        vocab_size=V, hidden_size=12, state_size=3, num_hidden_layers=1, num_heads=6, head_dim=4, n_groups=1
    )
    Mamba2ForCausalLM(config).save_pretrained(tmp_path)
    model = from_pretrained(tmp_path, dtype=torch.float64)
    assert_near(model.logit_directions(), (model.W_head * model.norm_f.weight[:, None]).detach())

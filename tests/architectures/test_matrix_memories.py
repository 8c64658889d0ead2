"""Matrix memories: what crosses a cut is as large as declared, what they show is what they compute."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from closeness import assert_near, moved_off
from recallscope.architectures.capabilities import HasAttention, HasKeys, HasOperators, HasState, WritesFacts
from recallscope.architectures.matrix_memory_model import Drive, MemoryLayer, MemoryModel
from recallscope.architectures.model import build_model
from recallscope.records import parse_record
from recallscope.specs import ARCHITECTURES, ModelSpec

KINDS = [name for name in ARCHITECTURES.names() if hasattr(ARCHITECTURES.find(name), "published") and name != "hybrid"]
EVERY = pytest.mark.parametrize("kind", KINDS)
VARIANTS = {
    "based": ("linear_attention", {"feature_map": "taylor", "normaliser": True}),
    "elu, normalised": ("linear_attention", {"feature_map": "elu", "normaliser": True}),
    "taylor": ("linear_attention", {"feature_map": "taylor"}),
    "mlstm, no normaliser": ("mlstm", {"normaliser": False}),
    "mesa_net, fading": ("mesa_net", {"forget": True}),
    "rwkv7, bonus": ("rwkv7", {"bonus": True}),
    "routed_memory, soft": ("routed_memory", {"routing": "soft", "num_memories": 2}),
    "mamba3, skip": ("mamba3", {"skip": True, "qk_norm": "rms", "turning": 0.5}),
    "mamba3 as mamba2": ("mamba3", {"trapezoid": False, "turning": 0.0}),
    "comba, corrected": ("comba", {"output_correction": 1.0}),
    "delta_product, fading": ("delta_product", {"forget": True, "num_steps": 3, "largest_rate": 2.0}),
    "attention, rotary": ("attention", {"rotary": True}),
    "retnet, rotary": ("retnet", {"rotary": True}),
    **{kind: (kind, {"window": 3} if kind == "window_attention" else {}) for kind in KINDS},
}
NOT_S_TIMES_Q = ("attention", "window_attention", "mesa_net", "mlstm", "routed_memory")
V, L = 12, 9


def spec_of(kind: str, *, published: bool = False, **fields: object) -> ModelSpec:
    cls = ARCHITECTURES.find(kind)
    sizes = {"embed_dim": 6, "state_dim": 4, "num_heads": 2} | fields
    return cls.published(**sizes) if published else cls(**sizes)


def build(spec: ModelSpec, *, blurred: bool = True, vocab_size: int = V) -> MemoryModel:
    """In double precision; weights that start at constants are moved off them."""
    g = torch.Generator().manual_seed(0)
    model = build_model(spec, vocab_size, g, dtype=torch.float64)
    if blurred:
        moved_off(model, g)
    return model


def draw_tokens(batch: int = 2, length: int = L, vocab_size: int = V) -> Tensor:
    return torch.randint(0, vocab_size, (batch, length), generator=torch.Generator().manual_seed(1))


def crossing(layer: MemoryLayer, before: int, after: int, queries: int = 1) -> int:
    """How many numbers cross a cut: the rank of the derivative of all that is read after it by all that came before.

    Several queries at every token where a window leaves only few tokens that see across the cut.
    """
    g, spec = torch.Generator().manual_seed(2), layer.spec
    n = spec.writes_per_token
    sizes = {"k": n * spec.state_dim, "v": n * spec.head_dim} | {
        name: gate.width for name, gate in layer.gate_names.items()
    }

    def drawn(length: int, width: int) -> Tensor:
        return torch.randn(1, length, spec.num_heads, width, generator=g, dtype=torch.float64)

    past = {name: drawn(before, width) for name, width in sizes.items()}
    future = {name: drawn(after, width) for name, width in sizes.items()}
    positions = torch.arange(before, before + after).repeat_interleave(queries)[None]
    q = drawn(after * queries, spec.state_dim)

    def read(*parts: Tensor) -> Tensor:
        whole = {name: torch.cat((part, future[name]), dim=1) for name, part in zip(sizes, parts, strict=True)}
        k, v = whole.pop("k") / spec.state_dim**0.5, whole.pop("v")
        return layer.recall(layer.prepared(Drive(4 * q, k, v, whole), positions), positions).flatten()

    jacobian = torch.autograd.functional.jacobian(read, tuple(past.values()), vectorize=False)
    scales = torch.linalg.svdvals(torch.cat([part.flatten(1) for part in jacobian], dim=1))
    return int((scales > 1e-6 * scales[0]).sum())  # mLSTM's epsilon lets its running maximum through at 1e-8


@pytest.mark.parametrize("name", VARIANTS)
def test_what_crosses_a_cut_is_as_large_as_declared(name: str) -> None:
    """No convolution is between: its window is not counted, as nowhere in this package."""
    kind, fields = VARIANTS[name]
    spec = spec_of(kind, state_dim=2, embed_dim=4, **fields)
    sizes = (18, 18) if spec.state_entries else (4, 14) if kind == "attention" else (4, 3, 4)
    assert crossing(build(spec).layers[0], *sizes) == spec.state_entries_after(sizes[0])


def test_state_sizes_are_these() -> None:
    """D = 32, N = 8, in the minimal variant: literal numbers, for tables and for the eye."""
    sizes = {kind: ARCHITECTURES.find(kind)(embed_dim=32, state_dim=8).state_entries for kind in KINDS}
    assert sizes == {
        "attention": None, "comba": 256, "delta_net": 256, "delta_product": 256, "gated_delta_net": 256,
        "gated_delta_net2": 256, "preconditioned_delta_net": 256 + 8, "routed_memory": 4 * 256,
        "gla": 256, "kda": 256, "linear_attention": 256, "mamba3": 256, "window_attention": None,
        "mesa_net": 256 + 36, "mlstm": 256 + 8, "retnet": 256, "rwkv7": 256,
    }  # fmt: skip
    assert ARCHITECTURES.find("attention")(embed_dim=32, state_dim=8).state_entries_after(64) == 64 * 40


@pytest.mark.parametrize("name", [name for name, (kind, _) in VARIANTS.items() if kind != "delta_product"])
@torch.no_grad()
def test_it_is_attention_with_the_weights_it_shows(name: str) -> None:
    """Linear in the values, delta rule and least squares included; RWKV-7's bonus is part of the weights."""
    kind, fields = VARIANTS[name]
    model, tokens = build(spec_of(kind, **fields)), draw_tokens()
    shown, trace = model.attention(tokens), model.trace(tokens).layers[0]
    read = torch.einsum("bmptl,btmp->blmp", shown.maps.expand(-1, -1, shown.values.shape[-1], -1, -1), shown.values)
    assert_near(read, trace.y_heads)
    assert_near(torch.einsum("blmp,dmp->bld", read, shown.out), trace.y)
    assert (shown.maps.tril(-1) == 0).all()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in NOT_S_TIMES_Q])
@torch.no_grad()
def test_what_is_read_is_the_state_times_the_query(kind: str) -> None:
    model, tokens = build(spec_of(kind)), draw_tokens()
    trace = model.trace(tokens, states=True).layers[0]
    assert_near(torch.einsum("blmpn,blmn->blmp", trace.h, trace.C), trace.y_heads)
    assert_near(model.state_after(tokens)[0], trace.h[:, -1])


@EVERY
def test_they_show_what_they_have_and_say_what_they_lack(kind: str) -> None:
    model = build(spec_of(kind, num_layers=2))
    assert model.capability(HasKeys) is not None
    assert (model.capability(HasAttention) is None) == (kind == "delta_product")
    assert (model.capability(HasState) is None) == (kind in ("attention", "window_attention"))
    assert model.capability(HasOperators) is model.capability(WritesFacts) is None
    keys, queries = model.keys_and_queries(draw_tokens())
    assert keys.shape == queries.shape == (2, L, 2, 16 if kind == "routed_memory" else 4)


@pytest.mark.parametrize("conv", ["full", "depthwise", "shift"])
@torch.no_grad()
def test_the_future_does_not_reach_the_past(conv: str) -> None:
    width = 2 if conv == "shift" else 3
    model, tokens = build(spec_of("kda", published=True, conv=conv, conv_width=width, num_layers=2)), draw_tokens(1, 12)
    changed = tokens.clone()
    changed[0, 7:] = (changed[0, 7:] + 1) % V
    assert_near(model(tokens)[0, :7], model(changed)[0, :7])


@torch.no_grad()
def test_a_shift_is_a_full_convolution_of_two_taps() -> None:
    shifted, full = build(spec_of("rwkv7", conv="shift")), build(spec_of("rwkv7"))
    mine, theirs = shifted.layers[0], full.layers[0]
    for (name, weight), (_, given) in zip(theirs.named_parameters(), theirs.named_parameters(), strict=True):
        weight.copy_(dict(mine.named_parameters())[name] if name != "W_in" else given)
    mix = torch.cat([row.expand(rows, -1) for row, rows in zip(mine.shift, mine.rows, strict=True)])
    theirs.W_in.copy_(torch.cat((mine.W_in * mix, mine.W_in * (1 - mix))))
    full.E.copy_(shifted.E)
    assert_near(full(draw_tokens()), shifted(draw_tokens()))


@EVERY
def test_gates_start_where_the_spec_says(kind: str) -> None:
    """At the start a token leaves .9975 of the state and writes with .12, give or take what small weights add."""
    layer = build(spec_of(kind, embed_dim=64), blurred=False).layers[0]
    if not hasattr(layer, "update"):
        return
    with torch.no_grad():
        x = torch.zeros(1, 4, 64, dtype=torch.float64)
        drive = layer.drive(layer.project_in(x))
        update = layer.update(drive._replace(k=torch.ones_like(drive.k)))
    if hasattr(layer.spec, "forget_start") and update.w is not None and kind != "mlstm":
        first = update.w[:, :: update.per_token]  # further changes by the same token do not fade the state again
        assert first == pytest.approx(torch.full_like(first, 0.9975), abs=1e-7)
    if hasattr(layer.spec, "write_start") and kind != "preconditioned_delta_net":  # its factor m is 1.5 at h = 0
        written = update.k[update.k != 0]  # not the rows of memories that were not chosen
        assert written == pytest.approx(torch.full_like(written, 0.12), abs=1e-7)


def test_windows_and_dimensions_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"conv_width=3 with conv='shift'.*Use conv_width=2"):
        spec_of("rwkv7", conv="shift", conv_width=3)
    with pytest.raises(ValueError, match=r"state_dim=3 is odd: rotary.*Use state_dim=4"):
        spec_of("attention", state_dim=3, rotary=True)


def test_deep_models_have_residuals_unless_told_otherwise() -> None:
    assert spec_of("gla", num_layers=2).residual
    assert not spec_of("gla").residual
    assert not spec_of("gla", num_layers=2, residual=False).residual


def flags(fields: dict[str, object]) -> str:
    def word(value: object) -> str:
        return ("yes" if value else "no") if isinstance(value, bool) else str(value)

    return " ".join(f"--{name.replace('_', '-')} {word(value)}" for name, value in sorted(fields.items()))


def table() -> list[str]:
    rows, published = [], []
    for kind in KINDS:
        cls = ARCHITECTURES.find(kind)
        size = cls.state_entries_after if "attention" in kind and kind != "linear_attention" else cls.state_entries
        says = (cls.__doc__, getattr(size, "fget", size).__doc__)
        what, state = (" ".join((text or "").split()).replace("|", "\\|").rstrip(".") for text in says)
        rows.append(f"| `{kind}` | {what} | {state} |")
        published.append(f"| `{kind}` | `{flags(cls.PUBLISHED)}` |")
    return [
        "\n".join(["| name | what it does | state entries |", "|---|---|---|", *rows]),
        "\n".join(["| name | flags |", "|---|---|", *published]),
    ]


def test_the_tables_in_the_docs_are_these() -> None:
    docs = (Path(__file__).resolve().parents[2] / "docs" / "ARCHITECTURES.md").read_text(encoding="utf-8")
    for part in table():
        assert part in docs, f"docs/ARCHITECTURES.md should hold:\n{part}"


@EVERY
def test_the_flags_of_the_published_layer_make_it(kind: str, run: Callable[..., tuple[int, str, str]], tmp_path: Path):
    sizes = {"vocab_size": 16, "num_facts": 2, "embed_dim": 4, "state_dim": 2}
    few = {"warmup_steps": 0, "flat_steps": 1, "decay_steps": 0, "eval_size": 10}
    published = ARCHITECTURES.find(kind).PUBLISHED
    code, _, err = run("train", "--model", kind, *flags(published | sizes | few).split(), "--out", tmp_path)
    assert code == 0, err
    spec = parse_record((tmp_path / "record.json").read_text()).spec.model
    assert spec == ARCHITECTURES.find(kind).published(embed_dim=4, state_dim=2)

"""Every matrix memory is the one others run: values and gradients against independent code, at random sizes; so are
Mamba-2 and published layers as wholes, with projections, positions, convolutions, gates, norms and MLPs.

flash-linear-attention's references are plain torch; importing `fla.ops` would need Triton, so the files are loaded by
their path in the installed wheel. Where the wheel or transformers is missing these tests fail: they never skip.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.functional import elu, logsigmoid, normalize, pad, relu, softplus
from transformers import LlamaConfig, Mamba2Config, Qwen3NextConfig
from transformers.models.kimi_linear.modeling_kimi_linear import (
    chunk_kimi_delta_attention,
    recurrent_kimi_delta_attention,
)
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, LlamaRotaryEmbedding
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer as HFMamba2Mixer
from transformers.models.qwen3_next.modeling_qwen3_next import (
    Qwen3NextGatedDeltaNet,
    torch_chunk_gated_delta_rule,
    torch_recurrent_gated_delta_rule,
)
from transformers.models.xlstm.modeling_xlstm import mlstm_chunkwise_native_autograd, mlstm_recurrent_sequence_native

from closeness import assert_agree, assert_twins, moved_off, output_and_gradients
from recallscope.architectures.blocks import BlockLayer
from recallscope.architectures.mamba import Mamba2Spec
from recallscope.architectures.mamba2_model import Mamba2Mixer
from recallscope.architectures.matrix_memory import AttentionSpec, MatrixMemory
from recallscope.architectures.matrix_memory_model import Drive, MemoryLayer
from recallscope.ops.ssd import ssd_scan
from recallscope.registry import import_from
from recallscope.specs import ARCHITECTURES

Reference = Callable[[MemoryLayer, Tensor, Tensor, Tensor, dict[str, Tensor]], Tensor]
DOCS = Path(__file__).resolve().parents[2] / "docs" / "ARCHITECTURES.md"


def fla(name: str) -> ModuleType:
    """A reference of flash-linear-attention, without its package."""
    found = find_spec("fla")
    assert found is not None, "fla-core is not installed: pip install -e '.[test]'"
    return import_from(str(Path(found.origin).parent / "ops" / name))


def heads_first(*tensors: Tensor) -> list[Tensor]:
    return [x.transpose(1, 2) for x in tensors]


def beta(gates: dict[str, Tensor]) -> Tensor:
    return torch.sigmoid(gates["beta"])[..., 0]


def log_alpha(layer: MemoryLayer, gates: dict[str, Tensor]) -> Tensor:
    return -layer.A_log.exp() * softplus(gates["alpha"])


def by_row(gate: Tensor, k: Tensor) -> Tensor:
    """A gate that every row of the state has its own of: one for all would pass unnoticed, as it broadcasts."""
    assert gate.shape == k.shape
    return gate


def linear_attention(layer, q, k, v, gates):
    f = {"identity": lambda x: x, "relu": relu, "elu": lambda x: elu(x) + 1}[layer.spec.feature_map]
    theirs = fla("linear_attn/naive.py").naive_recurrent_linear_attn
    return theirs(f(q), f(k), v, normalize=layer.spec.normaliser)[0]


def based(layer, q, k, v, gates):
    o = fla("based/naive.py").naive_parallel_based(*heads_first(q, k, v), use_norm=layer.spec.normaliser)
    return o.transpose(1, 2)


def retention(layer, q, k, v, gates):
    return fla("retention/naive.py").naive_retention(*heads_first(q, k, v)).transpose(1, 2)


def gla(layer, q, k, v, gates):
    return fla("gla/naive.py").naive_recurrent_gla(q, k, v, logsigmoid(by_row(gates["alpha"], k)) / 16)[0]


def delta_rule(layer, q, k, v, gates):
    theirs = fla("delta_rule/naive.py").delta_rule_recurrence
    return theirs(*heads_first(q, k, v), beta(gates).transpose(1, 2))[0].transpose(1, 2)


def gated_delta_rule(layer, q, k, v, gates):
    theirs = fla("gated_delta_rule/naive.py").naive_recurrent_gated_delta_rule
    return theirs(q, k, v, beta(gates), log_alpha(layer, gates)[..., 0])[0]


def qwen3_next_recurrent(layer, q, k, v, gates):
    g = log_alpha(layer, gates)[..., 0]
    return torch_recurrent_gated_delta_rule(q, k, v, g, beta(gates), None, False)[0]


def qwen3_next_chunked(layer, q, k, v, gates):
    return torch_chunk_gated_delta_rule(q, k, v, log_alpha(layer, gates)[..., 0], beta(gates), chunk_size=4)[0]


def kda(layer, q, k, v, gates):
    return fla("kda/naive.py").naive_recurrent_kda(q, k, v, by_row(log_alpha(layer, gates), k), beta(gates))[0]


def kimi_linear_recurrent(layer, q, k, v, gates):
    return recurrent_kimi_delta_attention(q, k, v, log_alpha(layer, gates), beta(gates), None, False)[0]


def kimi_linear_chunked(layer, q, k, v, gates):
    return chunk_kimi_delta_attention(q, k, v, log_alpha(layer, gates), beta(gates), chunk_size=4)[0]


def gdn2(layer, q, k, v, gates):
    b, w = torch.sigmoid(by_row(gates["erase"], k)), torch.sigmoid(by_row(gates["write"], v))
    return fla("gdn2/naive.py").naive_recurrent_gdn2(q, k, v, by_row(log_alpha(layer, gates), k), b, w)[0]


def comba(layer, q, k, v, gates):
    """The correction of the queries is made before their recurrence, as in their layer."""
    p = torch.sigmoid(layer.erase) * k
    q = q if layer.correction is None else q - layer.correction * p
    theirs = fla("comba/naive.py").naive_recurrent_comba
    return theirs(q, k, v, p, beta(gates), log_alpha(layer, gates)[..., 0])[0]


def gated_delta_product(layer, q, k, v, gates):
    """Their steps stand one after another on the axis of tokens."""
    n = layer.spec.num_steps
    k, v, rate = (x.unflatten(-1, (n, -1)).transpose(2, 3).flatten(1, 2) for x in (k, v, gates["beta"]))
    g = log_alpha(layer, gates)[..., 0] if layer.spec.forget else None
    theirs = fla("gated_delta_product/naive.py").naive_recurrent_gated_delta_product
    rate = layer.spec.largest_rate * torch.sigmoid(rate)[..., 0]
    return theirs(q, k, v, g, rate, q.shape[-1] ** -0.5, num_householder=n)[0]


def preconditioned(layer, q, k, v, gates):
    """Queries and keys are unit vectors already: that theirs makes them so once more would change the gradient."""
    module = fla("precond_gated_delta_rule/naive.py")
    module.F = SimpleNamespace(normalize=lambda x, **_: x)
    curvature = -layer.curvature_A_log.exp() * softplus(gates["curvature_alpha"])
    rates = torch.sigmoid(gates["curvature_beta"])[..., 0], beta(gates)
    theirs = module.naive_recurrent_precond_gated_delta_rule
    decays = curvature[..., 0], log_alpha(layer, gates)[..., 0]
    return theirs(q, k, v, *decays, *rates, log_atk_scale=layer.log_scale)[0]


def dplr(layer, q, k, v, gates):
    """RWKV-7 as diagonal plus low rank; the bonus is fla's sum over the current token."""
    a, log_w = torch.sigmoid(by_row(gates["a"], k)), -0.606531 * torch.sigmoid(by_row(gates["w"], k))
    kappa, key = normalize(k * layer.k_k, dim=-1), k * (1 + (a - 1) * layer.k_a)
    theirs = fla("generalized_delta_rule/dplr/naive.py").dplr_recurrence
    o = theirs(*heads_first(q, key, v, -kappa, kappa * a, log_w))[0].transpose(1, 2)
    return o + (q * q.shape[-1] ** -0.5 * key * layer.r_k).sum(-1, keepdim=True) * v


def xlstm_recurrent(layer, q, k, v, gates):
    tensors = heads_first(q, k, v, gates["i"][..., 0], gates["f"][..., 0])
    return mlstm_recurrent_sequence_native(*tensors).transpose(1, 2)


def xlstm_chunked(layer, q, k, v, gates):
    tensors = heads_first(q, k, v, gates["i"][..., 0], gates["f"][..., 0])
    return mlstm_chunkwise_native_autograd(*tensors, chunk_size=1).transpose(1, 2)


def mesa(layer, q, k, v, gates):
    ridge = layer.spec.least_ridge + layer.log_ridge.exp()
    g = -softplus(gates["alpha"])[..., 0]
    return fla("mesa_net/naive.py").naive_mesa_net_exact(q * q.shape[-1] ** -0.5, k, v, g, ridge, beta(gates))[0]


def softmax(layer, q, k, v, gates):
    return fla("attn/naive.py").naive_parallel_attn(q, k, v)[0]


def mamba3(layer, q, k, v, gates):
    """The plain recurrence of arXiv 2603.15569 on a complex state, written here: pairs of rows are complex numbers.

    The state turns back by every angle, where keys and queries turn on.
    """
    if layer.spec.qk_norm == "rms":
        N = q.shape[-1]
        q, k = (x * (x.square().mean(dim=-1, keepdim=True) + 1e-5).rsqrt() for x in (q * N**-0.5, k))
        q, k = q * layer.norm_q.weight + layer.q_bias, k * layer.norm_k.weight + layer.k_bias
    A, scale = layer.spec.num_angles, q.shape[-1] ** -0.5
    step, rate, mix = softplus(gates["step"]), softplus(gates["rate"]), torch.sigmoid(gates["mix"])
    turn = torch.pi * torch.tanh(gates.get("turn", step[..., :0])) * step
    q, k = (torch.cat((torch.complex(x[..., :A], x[..., A : 2 * A]), x[..., 2 * A :] + 0j), dim=-1) for x in (q, k))
    turn = pad(turn, (0, q.shape[-1] - A))
    h, written, o = 0.0, 0.0, []
    for t in range(q.shape[1]):
        factor = torch.polar(torch.exp(-rate * step)[:, t].expand_as(turn[:, t]), -turn[:, t])[..., None]
        trapezoid = (1 - mix)[:, t, ..., None] * step[:, t, ..., None] * written
        written = k[:, t, ..., None] * v[:, t, :, None]
        h = factor * (h + trapezoid) + (mix * step)[:, t, ..., None] * written
        o.append((q[:, t, ..., None].conj() * h).real.sum(dim=-2))
    o = scale * torch.stack(o, dim=1)
    return o if layer.skip is None else o + layer.skip * v


def window(layer, q, k, v, gates):
    return fla("attn/naive.py").naive_parallel_attn(q, k, v, window_size=layer.spec.window)[0]


def routed(layer, q, k, v, gates):
    """Linear attention to the tokens of each memory, read by the queries that it is chosen for."""

    def route(router):
        soft = router.softmax(dim=-1)
        hard = (router == router.amax(dim=-1, keepdim=True)).to(soft)
        return soft if layer.spec.routing == "soft" else hard.sub(soft).detach() + soft

    theirs = fla("linear_attn/naive.py").naive_recurrent_linear_attn
    write, read = (route(gates[name])[..., None].unbind(dim=-2) for name in ("write", "read"))
    rate = torch.sigmoid(gates["beta"])
    return sum(r * theirs(q, w * rate * k, v, normalize=False)[0] for w, r in zip(write, read, strict=True))


class Case(NamedTuple):
    """One architecture with some fields, the reference, and where it is from."""

    kind: str
    source: str
    reference: Reference
    fields: dict[str, Any] = {}  # noqa: RUF012 (never changed)


FLA, HF = "fla-core `fla/ops/{}/naive.py`", "transformers `models/{}`"
fla_ops = FLA.format
OWN = "state-spaces/mamba's plain reference, by numbers recorded from it, and our plain complex recurrence"
CASES = [
    Case("linear_attention", fla_ops("linear_attn"), linear_attention),
    Case("linear_attention", fla_ops("linear_attn"), linear_attention, {"feature_map": "relu"}),
    # ours adds 1e-6 to the sum it divides by: 25 roundings
    Case("linear_attention", fla_ops("linear_attn"), linear_attention, {"feature_map": "elu", "normaliser": True}),
    Case("linear_attention", fla_ops("based"), based, {"feature_map": "taylor"}),
    Case("linear_attention", fla_ops("based"), based, {"feature_map": "taylor", "normaliser": True}),
    Case("retnet", fla_ops("retention"), retention),
    Case("gla", fla_ops("gla"), gla),
    Case("mlstm", HF.format("xlstm"), xlstm_recurrent),
    Case("mlstm", HF.format("xlstm"), xlstm_chunked),
    Case("delta_net", fla_ops("delta_rule"), delta_rule),
    Case("gated_delta_net", fla_ops("gated_delta_rule"), gated_delta_rule),
    Case("gated_delta_net", HF.format("qwen3_next"), qwen3_next_recurrent),
    Case("gated_delta_net", HF.format("qwen3_next"), qwen3_next_chunked),
    Case("kda", fla_ops("kda"), kda),
    Case("kda", HF.format("kimi_linear"), kimi_linear_recurrent),
    Case("kda", HF.format("kimi_linear"), kimi_linear_chunked),
    Case("gated_delta_net2", fla_ops("gdn2"), gdn2),
    Case("comba", fla_ops("comba"), comba),
    Case("comba", fla_ops("comba"), comba, {"output_correction": 1.0}),
    Case("delta_product", fla_ops("gated_delta_product"), gated_delta_product, {"num_steps": 3}),
    Case("delta_product", fla_ops("gated_delta_product"), gated_delta_product, {"forget": True, "largest_rate": 2.0}),
    Case("preconditioned_delta_net", fla_ops("precond_gated_delta_rule"), preconditioned),
    Case("rwkv7", fla_ops("generalized_delta_rule/dplr"), dplr, {"bonus": True}),
    Case("mesa_net", fla_ops("mesa_net"), mesa, {"forget": True, "least_ridge": 0.25}),
    Case("mamba3", OWN, mamba3, {"turning": 0.5}),
    Case("mamba3", OWN, mamba3, {"qk_norm": "rms", "skip": True}),
    Case("window_attention", fla_ops("attn"), window, {"window": 4}),
    Case("routed_memory", fla_ops("linear_attn"), routed),
    Case("routed_memory", fla_ops("linear_attn"), routed, {"routing": "soft"}),
    Case("attention", fla_ops("attn"), softmax),
]


def name_of(case: Case) -> str:
    return "-".join([case.kind, case.reference.__name__, *map(str, case.fields.values())])


def draw_layer(case: Case, seed: int, g: torch.Generator) -> MemoryLayer:
    """Random sizes; seeds 0, 1 and 2 are one token, one dimension and one head. Weights are moved off constants."""
    N, M = 1 if seed == 1 else pick(g, 1, 8), 1 if seed == 2 else pick(g, 2, 4)
    P = N if case.kind == "mesa_net" else pick(g, 1, 6)  # theirs has square states only
    return layer_of(ARCHITECTURES.find(case.kind)(embed_dim=M * P, state_dim=N, num_heads=M, **case.fields), g)


def layer_of(spec: MatrixMemory, g: torch.Generator, spread: float = 0.3) -> MemoryLayer:
    layer = spec.blank_model(4).layers[0]
    layer.draw_weights(g)
    moved_off(layer, g, spread)
    return layer


def pick(g: torch.Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high + 1, (), generator=g))


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_memory_is_theirs_in_values_and_every_gradient(case: Case, seed: int) -> None:
    """By queries, keys, values, gates before their activation, and the layer's own parameters."""
    g = torch.Generator().manual_seed(seed)
    layer, batch, L = draw_layer(case, seed, g), pick(g, 1, 3), 1 if seed == 0 else pick(g, 2, 14)
    L = max(L, 2 if case.kind == "mamba3" else 1)  # alone, a token's angle changes nothing but rounding
    M, N, P = layer.spec.num_heads, layer.spec.state_dim, layer.spec.head_dim
    n = layer.spec.writes_per_token
    q, k = (normalize(torch.randn(batch, L, M, i, N, generator=g), dim=-1).flatten(3) for i in (1, n))
    v = torch.randn(batch, L, M, n * P, generator=g)
    gates = {name: torch.randn(batch, L, M, gate.width, generator=g) for name, gate in layer.gate_names.items()}
    own = {name: p for name, p in layer.named_parameters() if not name.startswith(("W_", "gate_bias"))}
    leaves = {name: x.requires_grad_() for name, x in ({"q": q, "k": k, "v": v} | gates | own).items()}
    ours = layer.recall(layer.prepared(Drive(q * N**-0.5, k, v, gates), None), None)

    def theirs() -> dict[str, Tensor]:
        return output_and_gradients(case.reference(layer, q, k, v, gates), leaves, may_be_unused=True)

    assert_agree(output_and_gradients(ours, leaves, may_be_unused=True), theirs, leaves.values())


RECORDED = {  # by `mamba3_siso_step_ref` of state-spaces/mamba at commit e9594ce, tests/ops/triton/test_mamba3_siso.py
    "output": (-1.0373693283605396, -0.1568522768683871, -0.031748667024039834,
               1.2785553122815367, -0.7848291951725326, 0.23785462031559476),
    "q": (0.016589389080298833, 3.292228332789696), "k": (-1.3666300493817043, 2.84200132793216),
    "v": (-1.2723687809954363, 5.791627356885881), "step": (-0.1566134855316489, 1.4964339507794502),
    "rate": (0.18251767062493282, 0.4534902730213234), "mix": (0.14946926034957808, 1.3382029166293161),
    "turn": (1.442179719450146, 2.6421951670241457), "skip": (-2.6972237308584726, 2.840011438272002),
}  # fmt: skip


def test_mamba_3_is_what_was_recorded_from_its_authors_reference() -> None:
    """The last output, and of every gradient a product with cosines and the length; the loss weighs outputs by sines.

    Their rows 2n and 2n + 1 turn together, ours n and n + A.
    """
    L, M, N, P = 6, 2, 6, 3
    sizes = {"q": N, "k": N, "v": P, "step": 1, "rate": 1, "mix": 1, "turn": 2}

    def wave(count: int) -> Tensor:
        return torch.arange(count, dtype=torch.float64)

    given = {name: torch.cos(wave(L * M * n) ** 1.5 + i).view(1, L, M, n) for i, (name, n) in enumerate(sizes.items())}
    leaves = {name: x.requires_grad_() for name, x in given.items()}
    spec = ARCHITECTURES.find("mamba3")(embed_dim=M * P, state_dim=N, num_heads=M, turning=0.7, skip=True)
    layer = spec.blank_model(4).layers[0].double()
    layer.skip.data.copy_(torch.tensor([[0.5], [-1.5]]))
    q, k = (leaves[name][..., [0, 2, 1, 3, 4, 5]] for name in "qk")
    drive = Drive(q, k, leaves["v"], {name: leaves[name] for name in ("step", "rate", "mix", "turn")})
    output = layer.recall(layer.prepared(drive, None), None)
    (output.flatten() * torch.sin(wave(output.numel()))).sum().backward()
    found = {"output": output[0, -1].flatten()}
    for name, x in (leaves | {"skip": layer.skip}).items():
        gradient = x.grad.flatten()
        found[name] = torch.stack((gradient @ torch.cos(wave(len(gradient))), gradient.norm()))
    for name, numbers in RECORDED.items():
        torch.testing.assert_close(found[name], torch.tensor(numbers, dtype=torch.float64), rtol=0, atol=1e-12)


def qwen3_next_layer(layer: MemoryLayer) -> Qwen3NextGatedDeltaNet:
    """Their whole layer with our weights: rows of projections are dealt to heads in another order."""
    spec = layer.spec
    M, N, P = spec.num_heads, spec.state_dim, spec.head_dim
    config = Qwen3NextConfig(
        vocab_size=4, hidden_size=spec.embed_dim, num_hidden_layers=1, layer_types=["linear_attention"],
        linear_num_value_heads=M, linear_num_key_heads=M, linear_key_head_dim=N, linear_value_head_dim=P,
        linear_conv_kernel_dim=spec.conv_width, rms_norm_eps=1e-5, hidden_act="silu",
    )  # fmt: skip
    theirs = Qwen3NextGatedDeltaNet(config, 0).eval()
    q, k, v, b, a = (rows.unflatten(0, (M, -1)) for rows in layer.W_in[0].split(layer.rows))
    given = {
        "in_proj_qkvz.weight": torch.cat((q, k, v, layer.W_gate.unflatten(0, (M, P))), dim=1).flatten(0, 1),
        "in_proj_ba.weight": torch.cat((b, a), dim=1).flatten(0, 1),
        "conv1d.weight": layer.W_conv[:, None],
        "dt_bias": layer.gate_bias[M:],
        "A_log": layer.A_log[:, 0],
        "norm.weight": layer.norm_out.weight,
        "out_proj.weight": layer.W_out,
    }
    theirs.load_state_dict(given, strict=True)
    return theirs


@pytest.mark.parametrize("seed", range(6))
def test_the_published_gated_delta_net_is_a_layer_of_qwen3_next(seed: int) -> None:
    """Projections, convolution, SiLU, unit keys, gates, norm and output gate together; the norm before it aside."""
    g = torch.Generator().manual_seed(seed)
    M, P, N = pick(g, 1, 4), pick(g, 2, 6), pick(g, 4, 8)
    find = ARCHITECTURES.find("gated_delta_net").published
    spec = find(embed_dim=M * P, state_dim=N, num_heads=M, norm="none", residual=False)
    layer = layer_of(spec, g, 1.0)  # far from 0, where their epsilon in the L2 norm shows
    with torch.no_grad():
        layer.gate_bias[:M] = 0.0  # theirs has no bias there
    theirs = qwen3_next_layer(layer)
    x = torch.randn(2, pick(g, 1, 12), spec.embed_dim, generator=g).requires_grad_()
    ours = {"x": x, "out": layer.W_out, "norm": layer.norm_out.weight}
    expected = {"x": x, "out": theirs.out_proj.weight, "norm": theirs.norm.weight}
    inputs = [x, *theirs.parameters()]
    assert_agree(output_and_gradients(layer.mix(x), ours), lambda: output_and_gradients(theirs(x), expected), inputs)


@pytest.mark.parametrize("seed", range(4))
def test_attention_with_rotary_and_mlp_is_a_decoder_layer_of_llama(seed: int) -> None:
    """Both norms, RoPE of another base, residuals and SwiGLU."""
    g = torch.Generator().manual_seed(seed)
    M, P = pick(g, 1, 3), 2 * pick(g, 1, 4)
    spec = AttentionSpec.published(
        embed_dim=M * P, state_dim=P, num_heads=M, num_layers=1, rotary_base=50.0, mlp_width=pick(g, 3, 9)
    )
    layer, L = layer_of(spec, g), pick(g, 1, 12)
    config = LlamaConfig(
        vocab_size=4, hidden_size=M * P, intermediate_size=spec.mlp_width, num_hidden_layers=1, num_attention_heads=M,
        head_dim=P, rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": spec.rotary_base},
        attn_implementation="eager",
    )  # fmt: skip
    theirs = LlamaDecoderLayer(config, 0).eval()
    q, k, v = layer.W_in[0].split(layer.rows)
    theirs.load_state_dict(
        {
            "self_attn.q_proj.weight": q, "self_attn.k_proj.weight": k, "self_attn.v_proj.weight": v,
            "self_attn.o_proj.weight": layer.W_out, "input_layernorm.weight": layer.norm.weight,
            "post_attention_layernorm.weight": layer.mlp.norm.weight, "mlp.gate_proj.weight": layer.mlp.W_gate,
            "mlp.up_proj.weight": layer.mlp.W_up, "mlp.down_proj.weight": layer.mlp.W_down,
        }
    )  # fmt: skip
    x = torch.randn(2, L, M * P, generator=g).requires_grad_()
    turns = LlamaRotaryEmbedding(config)(x, torch.arange(L)[None])
    ahead = torch.full((L, L), -torch.inf).triu(1)[None, None]

    def llama() -> dict[str, Tensor]:
        weights = dict(theirs.named_parameters())
        said = theirs(x, attention_mask=ahead, position_embeddings=turns)
        found = output_and_gradients(said, {"x": x, **weights})
        projections = [found.pop(f"self_attn.{name}_proj.weight") for name in "qkv"]
        return found | {"qkv": torch.cat(projections)}

    ours = {
        "qkv": layer.W_in, "self_attn.o_proj.weight": layer.W_out, "input_layernorm.weight": layer.norm.weight,
        "post_attention_layernorm.weight": layer.mlp.norm.weight, "mlp.gate_proj.weight": layer.mlp.W_gate,
        "mlp.up_proj.weight": layer.mlp.W_up, "mlp.down_proj.weight": layer.mlp.W_down,
    }  # fmt: skip
    mine = output_and_gradients(layer.mix(x), {"x": x, **ours})
    assert_agree(mine | {"qkv": mine["qkv"][0]}, llama, [x, *theirs.parameters()])


def hugging_face_mixer(spec: Mamba2Spec, chunk_size: int) -> HFMamba2Mixer:
    """One group of keys and queries is our MVA, as many groups as heads our MHA."""
    config = Mamba2Config(
        vocab_size=10, hidden_size=spec.embed_dim, state_size=spec.state_dim, expand=spec.expand, num_hidden_layers=1,
        num_heads=spec.num_heads, head_dim=spec.head_dim, n_groups=1 if spec.head_pattern == "MVA" else spec.num_heads,
        conv_kernel=spec.conv_width, use_conv_bias=spec.conv_bias, use_bias=False, layer_norm_epsilon=1e-5,
        chunk_size=chunk_size,
    )  # fmt: skip
    return HFMamba2Mixer(config, 0).eval()


@pytest.mark.parametrize("pattern", ["MVA", "MHA"])
@pytest.mark.parametrize("seed", range(12))
def test_the_mixer_of_mamba_2_is_theirs_in_output_and_every_gradient(seed: int, pattern: str) -> None:
    """Random sizes; every kernel width from 1 to 4 comes round; lengths below, at and above a chunk. Their mixer loads
    ours as it is, which checks names and shapes, too."""
    g = torch.Generator().manual_seed(seed)
    heads, head_dim = pick(g, 1, 5), pick(g, 1, 6)
    spec = Mamba2Spec(
        embed_dim=heads * head_dim, state_dim=pick(g, 1, 12), num_heads=heads, head_pattern=pattern,
        expand=1 + seed % 2, conv_width=1 + seed % 4, conv_bias=seed % 3 != 0, norm="none", residual=False,
    )  # fmt: skip
    layer = BlockLayer(spec, Mamba2Mixer(spec))
    layer.draw_weights(g)
    with torch.no_grad():
        for weight in (layer.mixer.D, layer.mixer.norm.weight):
            weight += 0.3 * torch.randn(weight.shape, generator=g)
    twin = hugging_face_mixer(spec, chunk_size=pick(g, 1, 16))
    twin.load_state_dict(layer.mixer.state_dict(), strict=True)
    x = torch.randn(pick(g, 1, 3), pick(g, 1, 24), spec.embed_dim, generator=g)
    ours, theirs = ({"x": x.requires_grad_(), **dict(m.named_parameters())} for m in (layer.mixer, twin))
    mine = output_and_gradients(layer.trace(x).y, ours)
    assert_agree(mine, lambda: output_and_gradients(twin(x), theirs), theirs.values())


@pytest.mark.parametrize("seed", range(4))
def test_mamba_2s_scan_is_simple_gated_linear_attention(seed: int) -> None:
    """B and C are keys and queries, Δ x̂ the values, exp(Δ A) the decay."""
    g = torch.Generator().manual_seed(seed)
    batch, L, M, P, N = (pick(g, 1, n) for n in (3, 12, 4, 5, 6))
    x, B, C = (torch.randn(batch, L, M, n, generator=g) for n in (P, N, N))
    delta, A = torch.rand(batch, L, M, generator=g), -torch.rand(M, generator=g)
    inputs = {"x_heads": x, "delta": delta, "A": A, "B": B, "C": C}

    def simple_gla(x_heads: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
        theirs = fla("simple_gla/naive.py").naive_recurrent_simple_gla
        return theirs(C, B, delta[..., None] * x_heads, delta * A, scale=1.0)[0]

    assert_twins(ssd_scan, simple_gla, inputs)


ELSEWHERE = {
    "hybrid": "none: its layers are those of the others (`tests/architectures/test_hybrid.py`)",
    "mamba": "transformers `models/mamba`; mambapy (`tests/claims/test_mamba_references.py`)",
    "mamba2": "transformers `models/mamba2`; fla-core `fla/ops/simple_gla/naive.py`",
    "linear_mamba": "none: it is `mamba` with parts off (`tests/agreement/test_linear_is_full_with_parts_off.py`)",
    "multihead": "none: its heads are `linear_mamba` models (`tests/ops/test_head_patterns.py`)",
}


def table() -> str:
    rows = dict(ELSEWHERE)
    for case in CASES:
        sources = rows.get(case.kind, "").split("; ") if case.kind in rows else []
        if case.source not in sources:
            rows[case.kind] = "; ".join([*sources, case.source])
    lines = [f"| `{kind}` | {rows[kind]} |" for kind in sorted(rows)]
    return "\n".join(["| architecture | compared with |", "|---|---|", *lines])


def test_every_architecture_has_a_row_and_the_table_in_the_docs_is_this_one() -> None:
    assert table() in DOCS.read_text(encoding="utf-8"), f"docs/ARCHITECTURES.md should hold:\n{table()}"
    ours = [name for name in ARCHITECTURES.names() if ARCHITECTURES.origin(name) is None]
    assert sorted(ours) == sorted({case.kind for case in CASES} | set(ELSEWHERE))

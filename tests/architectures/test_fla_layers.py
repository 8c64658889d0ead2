"""Whole published layers are those of flash-linear-attention: values, and gradients by every weight of theirs.

Their layers are files that import Triton kernels. Here norm, convolution and rotary embedding are torch's or
transformers', and the memory is their plain reference; projections, gates, order and scales are theirs. Our layer is
given what their weights make of its own.
"""

import sys
from collections.abc import Callable
from importlib.metadata import distribution
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import torch
from test_reference_layers import fla, pick
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import conv1d, normalize, pad, silu, softplus
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from closeness import assert_agree, output_and_gradients
from recallscope.registry import import_from
from recallscope.specs import ARCHITECTURES

Weights = dict[str, Tensor]
Kernel = Callable[..., Any]
STEPS = 2  # of DeltaProduct


class ShortConvolution(nn.Module):
    """A tap per channel and token, then SiLU; no state is handed on."""

    def __init__(self, hidden_size: int, kernel_size: int, **_: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(hidden_size, 1, kernel_size))

    def forward(self, x: Tensor, **_: Any) -> tuple[Tensor, None]:
        C, _, taps = self.weight.shape
        return silu(conv1d(pad(x.mT, (taps - 1, 0)), self.weight, groups=C).mT), None


class RMSNorm(nn.RMSNorm):
    def __init__(self, hidden_size: int, eps: float = 1e-5, **_: Any) -> None:
        super().__init__(hidden_size, eps=eps)


class FusedRMSNormGated(RMSNorm):
    def __init__(self, hidden_size: int, activation: str = "silu", **options: Any) -> None:
        super().__init__(hidden_size, **options)
        self.act = {"silu": silu, "sigmoid": torch.sigmoid}[activation]

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        return super().forward(x) * self.act(gate)


class RotaryEmbedding(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        parameters = {"rope_type": "default", "rope_theta": 10_000.0}
        self.turns = LlamaRotaryEmbedding(
            LlamaConfig(hidden_size=dim, num_attention_heads=1, rope_parameters=parameters)
        )

    def forward(self, q: Tensor, k: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
        return apply_rotary_pos_emb(q, k, *self.turns(q, torch.arange(q.shape[1])[None]), unsqueeze_dim=2)


def of_unit_keys(naive: Kernel) -> Kernel:
    """A plain reference, called as the kernel is, which makes queries and keys unit vectors itself."""

    def chunk(q: Tensor, k: Tensor, *, use_qk_l2norm_in_kernel: bool, cu_seqlens: None, **others: Any) -> Any:
        assert use_qk_l2norm_in_kernel
        if "p" in others:  # of Comba: s scales a unit key, as in the paper, and is not undone
            others["p"] = others["p"] / k.norm(dim=-1, keepdim=True)
        if "num_householder" in others:
            others["scale"] = q.shape[-1] ** -0.5
        return naive(normalize(q, dim=-1), normalize(k, dim=-1), **others)

    return chunk


def plain(naive: Kernel) -> Kernel:
    """One that needs no more than queries, keys, values and one gate."""
    return lambda q, k, v, **others: naive(q, k, v, *(others[name] for name in ("gk",) if name in others))


def heads_first(naive: Kernel) -> Kernel:
    """One whose axis of heads comes before that of tokens; the state it may return is left out."""

    def chunk(q: Tensor, k: Tensor, v: Tensor, **others: Any) -> Any:
        o = naive(*(x.transpose(1, 2) for x in (q, k, v, *(others[name] for name in ("beta",) if name in others))))
        return (o[0] if isinstance(o, tuple) else o).transpose(1, 2), None

    return chunk


def alone(naive: Kernel) -> Kernel:
    """The same, which returns no state."""
    return lambda **given: heads_first(naive)(**given)[0]


def delta_rule(naive: Kernel) -> Kernel:
    def chunk(q: Tensor, k: Tensor, v: Tensor, *, use_qk_l2norm_in_kernel: bool, **others: Any) -> Any:
        assert use_qk_l2norm_in_kernel
        return heads_first(naive)(normalize(q, dim=-1), normalize(k, dim=-1), v, **others)

    return chunk


def kda(naive: Kernel) -> Kernel:
    """Its kernel makes the gates."""

    def chunk(
        q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, A_log: Tensor, dt_bias: Tensor, **_: Any
    ) -> Any:
        decay = -A_log.exp()[:, None] * softplus(g + dt_bias.view(g.shape[-2:]))
        return naive(normalize(q, dim=-1), normalize(k, dim=-1), v, decay, beta.sigmoid())

    return chunk


def mesa(naive: Kernel) -> Kernel:
    def chunk(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, lamb: Tensor, **_: Any) -> Any:
        return naive(normalize(q, dim=-1), normalize(k, dim=-1), v, g, lamb, beta)

    return chunk


def heads_outermost(rows: Tensor, M: int) -> Tensor:
    """Theirs are dealt to the steps of DeltaProduct first, ours to the heads."""
    return rows.unflatten(0, (STEPS, M, -1)).transpose(0, 1).flatten(0, 2)


def gates(kind: str, w: Weights, M: int) -> tuple[list[Tensor], list[Tensor | None], Weights]:
    """Projections and biases of our gates, None for a bias that they have not, and what else is the layer's own."""
    row = {name.removesuffix("_proj.weight"): weight for name, weight in w.items()}
    if kind in ("linear_attention", "retnet"):
        return [], [], {}
    if kind == "gla":
        return [w["gk_proj.1.weight"] @ w["gk_proj.0.weight"]], [w["gk_proj.1.bias"]], {}
    if kind == "delta_net":
        return [row["b"]], [None], {}
    if kind == "mesa_net":  # softplus(-x) is -log sigmoid(x)
        own = {"log_ridge": softplus(w["lambda_params"]).log().unflatten(0, (M, -1))}
        return [row["b"], -row["a"]], [w["b_proj.bias"], -w["a_proj.bias"]], own
    if kind in ("kda", "gated_delta_net2"):
        alpha = w["f_proj.1.weight"] @ w["f_proj.0.weight"]
        rates = [row["b"], row["w"]] if "w" in row else [row["b"]]
        return [*rates, alpha], [*[None] * len(rates), w["dt_bias"]], {}
    if kind == "comba":
        return [row["b"], row["a"]], [None, w["dt_bias"]], {"erase": w["decay"][:, None]}
    if kind == "delta_product":
        return [heads_outermost(row["b"], M), row["a"]], [None, w["dt_bias"]], {}
    own = {"curvature_A_log": w["A_log_atk"][:, None], "log_scale": w["log_atk_scale"][:, None]}
    return [row["b"], row["a"], row["b_atk"], row["a_atk"]], [None, w["dt_bias"], None, w["dt_bias_atk"]], own


def as_ours(kind: str, w: Weights, M: int) -> Weights:
    """Our weights, made of theirs."""
    deal = heads_outermost if kind == "delta_product" else lambda rows, _: rows
    q, k, v = (w[f"{name}_proj.weight"] if name == "q" else deal(w[f"{name}_proj.weight"], M) for name in "qkv")
    taps = {name: w[f"{name}_conv1d.weight"][:, 0] for name in "qkv" if f"{name}_conv1d.weight" in w}
    rows, biases, own = gates(kind, w, M)
    offsets = [torch.zeros(len(one)) if bias is None else bias for one, bias in zip(rows, biases, strict=True)]
    found = own | {"W_in": torch.cat((q, k, v, *rows))[None], "W_out": w["o_proj.weight"]}
    found |= (
        {"W_conv": torch.cat([rows if name == "q" else deal(rows, M) for name, rows in taps.items()])} if taps else {}
    )
    found |= {"gate_bias": torch.cat(offsets)} if offsets else {}
    found |= {"A_log": w["A_log"][:, None]} if "A_log" in w else {}
    for name in ("o_norm.weight", "g_norm_swish_gate.weight", "norm.weight"):
        found |= {"norm_out.weight": w[name]} if name in w else {}
    if "g_proj.weight" in w:
        return found | {"W_gate": w["g_proj.weight"]}
    return found | ({"W_gate": w["g_proj.1.weight"] @ w["g_proj.0.weight"]} if "g_proj.0.weight" in w else {})


class Theirs(NamedTuple):
    """A layer of theirs: where it is, its memory with the kernel that it calls, and our fields and its for that."""

    kind: str
    file: str
    name: str
    memory: str
    kernel: str
    naive: str
    as_kernel: Callable[[Kernel], Kernel]
    fields: dict[str, Any] = {}  # noqa: RUF012 (never changed)
    options: dict[str, Any] = {}  # noqa: RUF012
    by_width: bool = False  # its keys are a share of its width; else a head's are given
    values: int = 2  # channels of a head's values, over N


UNIT = of_unit_keys
LAYERS = (
    Theirs("linear_attention", "linear_attn.py", "LinearAttention", "linear_attn", "chunk_linear_attn",
           "naive_recurrent_linear_attn", plain, options={"feature_map": "identity"}, by_width=True),
    Theirs("linear_attention", "based.py", "BasedLinearAttention", "based", "parallel_based", "naive_parallel_based",
           alone, {"feature_map": "taylor", "normaliser": True, "output_norm": "none"}),
    Theirs("retnet", "multiscale_retention.py", "MultiScaleRetention", "retention", "chunk_retention",
           "naive_retention", heads_first, by_width=True),
    Theirs("gla", "gla.py", "GatedLinearAttention", "gla", "fused_recurrent_gla", "naive_recurrent_gla", plain,
           by_width=True),
    Theirs("delta_net", "delta_net.py", "DeltaNet", "delta_rule", "fused_recurrent_delta_rule",
           "delta_rule_recurrence", delta_rule, by_width=True),
    Theirs("kda", "kda.py", "KimiDeltaAttention", "kda", "chunk_kda", "naive_recurrent_kda", kda,
           options={"expand_v": 2}),
    Theirs("mesa_net", "mesa_net.py", "MesaNet", "mesa_net", "chunk_mesa_net", "naive_mesa_net_exact", mesa, values=1),
    Theirs("gated_delta_net2", "gdn2.py", "GatedDeltaNet2", "gdn2", "chunk_gdn2", "naive_recurrent_gdn2", UNIT,
           options={"expand_v": 2}),
    # theirs corrects queries before they are unit vectors
    Theirs("comba", "comba.py", "Comba", "comba", "chunk_comba", "naive_recurrent_comba", UNIT,
           {"output_correction": 0.0}, {"use_output_correction": False, "expand_v": 2}),
    Theirs("delta_product", "gated_deltaproduct.py", "GatedDeltaProduct", "gated_delta_product",
           "chunk_gated_delta_product", "naive_recurrent_gated_delta_product", UNIT, {"num_steps": STEPS},
           {"expand_v": 2}),
    Theirs("preconditioned_delta_net", "precond_gated_deltanet.py", "PrecondGatedDeltaNet", "precond_gated_delta_rule",
           *2 * ("naive_recurrent_precond_gated_delta_rule",), lambda naive: naive,
           options={"mode": "naive", "expand_v": 2}),
)  # fmt: skip


@pytest.fixture
def their_layer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., nn.Module]:
    """A layer of theirs from its file, with what it imports from fla in plain torch."""

    def load(case: Theirs, **options: Any) -> nn.Module:
        memory = case.as_kernel(getattr(fla(f"{case.memory}/naive.py"), case.naive))
        parts = {
            "layers.utils": {
                "get_layer_cache": lambda *_: None,
                "unpad_hidden_states": lambda x, *_: (x, None, None),
                "update_layer_cache": lambda *_, **__: None,
                "repad_hidden_states": lambda x, *_: x,
            },
            "modules": {one.__name__: one for one in (FusedRMSNormGated, RMSNorm, ShortConvolution)},
            "modules.feature_map": {"TaylorFeatureMap": nn.Identity},  # the parallel form has its own
            "modules.rotary": {"RotaryEmbedding": RotaryEmbedding},
            "modules.activations": {"ACT2FN": {"swish": silu}},
            f"ops.{case.memory}": {case.kernel: memory},
        }
        others = ("", "layers", "ops", "ops.gated_delta_rule", "ops.linear_attn", "ops.utils", "ops.utils.index")
        for part in (*others, "modules.l2norm", *parts):
            module = ModuleType(f"fla.{part}".rstrip("."))
            vars(module).update({"__getattr__": lambda _: None} | parts.get(part, {}))  # other names are not used
            monkeypatch.setitem(sys.modules, module.__name__, module)
        path = distribution("flash-linear-attention").locate_file(f"fla/layers/{case.file}")
        return getattr(import_from(str(path)), case.name)(**options)

    return load


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("case", LAYERS, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore:The correction_factor")
def test_the_published_layer_is_theirs(case: Theirs, seed: int, their_layer: Callable[..., nn.Module]) -> None:
    g = torch.Generator().manual_seed(seed)
    M, N, L = pick(g, 1, 3), pick(g, 2, 5), pick(g, 1, 12)
    cls = ARCHITECTURES.find(case.kind)
    N *= 1 + cls.PUBLISHED.get("rotary", False)  # dimensions turn in pairs
    expand = cls.PUBLISHED.get("expand", 1)
    D = case.values * M * N // expand
    only = {"norm": "none", "residual": False, "num_layers": 1}
    spec = cls.published(embed_dim=D, state_dim=N, num_heads=M, **only | case.fields)
    sizes = {"head_dim": N}
    if case.by_width:
        sizes = {"expand_k": M * N / D, "expand_v": expand}
    if case.kind == "mesa_net":  # its queries are not scaled by N^-1/2, which the norm undoes but for its epsilon
        sizes["norm_eps"] = 1e-5 * N
    if case.name == "BasedLinearAttention":
        sizes = {"feature_dim": N, "num_key_value_heads": M}
    theirs = their_layer(case, hidden_size=D, num_heads=M, **sizes | case.options)
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            weight.copy_(torch.randn(weight.shape, generator=g) * (0 if name == "g_proj.1.bias" else 1))
    layer = spec.blank_model(4).layers[0]
    layer.forward = layer.mix
    x = torch.randn(2, L, D, generator=g).requires_grad_()
    leaves = {"x": x, **{name: w for name, w in theirs.named_parameters() if name != "g_proj.1.bias"}}
    weights = as_ours(case.kind, dict(theirs.named_parameters()), M)
    assert weights.keys() == dict(layer.named_parameters()).keys()
    ours = functional_call(layer, weights, (x,))

    def expected() -> Weights:
        y = theirs(x)
        return output_and_gradients(y[0] if isinstance(y, tuple) else y, leaves)

    assert_agree(output_and_gradients(ours, leaves), expected, leaves.values())

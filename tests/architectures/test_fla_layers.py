"""Whole published layers are those of flash-linear-attention: values, and gradients by every weight of theirs.

Their layers are files that import Triton kernels. Here norm and convolution are torch's, and the memory is their plain
reference; projections, gates, order and scales are theirs. Our layer is given what their weights make of its own.
"""

import sys
from collections.abc import Callable
from importlib.metadata import distribution
from types import ModuleType
from typing import Any

import pytest
import torch
from test_reference_layers import fla, pick
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import conv1d, normalize, pad, silu

from closeness import assert_agree, output_and_gradients
from recallscope.registry import import_from
from recallscope.specs import ARCHITECTURES

Weights = dict[str, Tensor]
STEPS = 2  # of DeltaProduct


class ShortConvolution(nn.Module):
    """A tap per channel and token, then SiLU; no state is handed on."""

    def __init__(self, hidden_size: int, kernel_size: int, **_: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(hidden_size, 1, kernel_size))

    def forward(self, x: Tensor, **_: Any) -> tuple[Tensor, None]:
        C, _, taps = self.weight.shape
        return silu(conv1d(pad(x.mT, (taps - 1, 0)), self.weight, groups=C).mT), None


class FusedRMSNormGated(nn.RMSNorm):
    def __init__(self, dim: int, activation: str = "silu", eps: float = 1e-5) -> None:
        super().__init__(dim, eps=eps)
        self.act = {"silu": silu, "sigmoid": torch.sigmoid}[activation]

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        return super().forward(x) * self.act(gate)


def of_unit_keys(naive: Callable[..., Any]) -> Callable[..., Any]:
    """A plain reference, called as the kernel is, which makes queries and keys unit vectors itself."""

    def chunk(q: Tensor, k: Tensor, *, use_qk_l2norm_in_kernel: bool, cu_seqlens: None, **others: Any) -> Any:
        assert use_qk_l2norm_in_kernel
        if "p" in others:  # of Comba: s scales a unit key, as in the paper, and is not undone
            others["p"] = others["p"] / k.norm(dim=-1, keepdim=True)
        if "num_householder" in others:
            others["scale"] = q.shape[-1] ** -0.5
        return naive(normalize(q, dim=-1), normalize(k, dim=-1), **others)

    return chunk


def heads_outermost(rows: Tensor, M: int) -> Tensor:
    """Theirs are dealt to the steps of DeltaProduct first, ours to the heads."""
    return rows.unflatten(0, (STEPS, M, -1)).transpose(0, 1).flatten(0, 2)


def gates(kind: str, w: Weights, M: int) -> tuple[list[Tensor], list[Tensor | None], Weights]:
    """Projections and biases of our gates, None for a bias that they have not, and what else is the layer's own."""
    row = {name.removesuffix("_proj.weight"): weight for name, weight in w.items()}
    if kind == "gated_delta_net2":
        alpha = w["f_proj.1.weight"] @ w["f_proj.0.weight"]
        return [row["b"], row["w"], alpha], [None, None, w["dt_bias"]], {}
    if kind == "comba":
        return [row["b"], row["a"]], [None, w["dt_bias"]], {"erase": w["decay"][:, None]}
    if kind == "delta_product":
        return [heads_outermost(row["b"], M), row["a"]], [None, w["dt_bias"]], {}
    own = {"curvature_A_log": w["A_log_atk"][:, None], "log_scale": w["log_atk_scale"][:, None]}
    return [row["b"], row["a"], row["b_atk"], row["a_atk"]], [None, w["dt_bias"], None, w["dt_bias_atk"]], own


def as_ours(kind: str, w: Weights, M: int) -> Weights:
    """Our weights, made of theirs."""
    deal = heads_outermost if kind == "delta_product" else lambda rows, _: rows
    names = "q_proj.weight", "k_proj.weight", "v_proj.weight"
    q, k, v = (w[name] if name[0] == "q" else deal(w[name], M) for name in names)
    taps = [w[name.replace("proj", "conv1d")][:, 0] for name in names]
    taps = [taps[0], *(deal(rows, M) for rows in taps[1:])]
    rows, biases, own = gates(kind, w, M)
    offsets = [torch.zeros(len(one)) if bias is None else bias for one, bias in zip(rows, biases, strict=True)]
    gate = w["g_proj.weight"] if "g_proj.weight" in w else w["g_proj.1.weight"] @ w["g_proj.0.weight"]
    return own | {
        "W_in": torch.cat((q, k, v, *rows))[None], "W_conv": torch.cat(taps), "W_gate": gate,
        "W_out": w["o_proj.weight"], "gate_bias": torch.cat(offsets), "norm_out.weight": w["o_norm.weight"],
        "A_log": w["A_log"][:, None],
    }  # fmt: skip


LAYERS: dict[str, tuple[str, str, str, dict[str, Any], dict[str, Any]]] = {
    # architecture: file of the layer, its class, its memory, our fields, theirs
    "gated_delta_net2": ("gdn2.py", "GatedDeltaNet2", "gdn2", {}, {"expand_v": 2}),
    # theirs corrects queries before they are unit vectors
    "comba": ("comba.py", "Comba", "comba", {"output_correction": 0.0}, {"use_output_correction": False}),
    "delta_product": ("gated_deltaproduct.py", "GatedDeltaProduct", "gated_delta_product", {"num_steps": STEPS}, {}),
    "preconditioned_delta_net": (
        "precond_gated_deltanet.py", "PrecondGatedDeltaNet", "precond_gated_delta_rule", {}, {"mode": "naive"},
    ),
}  # fmt: skip


@pytest.fixture
def their_layer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., nn.Module]:
    """A layer of theirs from its file, with what it imports from fla in plain torch."""

    def load(file: str, name: str, memory: str, **options: Any) -> nn.Module:
        naive = {key: value for key, value in vars(fla(f"{memory}/naive.py")).items() if key.startswith("naive")}
        (recurrent,) = (naive[key] for key in naive if key.startswith("naive_recurrent"))
        parts = {
            "layers.utils": {
                "get_layer_cache": lambda *_: None,
                "unpad_hidden_states": lambda x, *_: (x, None, None),
                "update_layer_cache": lambda *_, **__: None,
                "repad_hidden_states": lambda x, *_: x,
            },
            "modules": {"FusedRMSNormGated": FusedRMSNormGated, "ShortConvolution": ShortConvolution},
            f"ops.{memory}": naive | {f"chunk_{memory}": of_unit_keys(recurrent)},
        }
        for part in ("", "layers", "ops", "ops.gated_delta_rule", *parts):
            module = ModuleType(f"fla.{part}".rstrip("."))
            vars(module).update({"__getattr__": lambda _: None} | parts.get(part, {}))  # other names are not used
            monkeypatch.setitem(sys.modules, module.__name__, module)
        path = distribution("flash-linear-attention").locate_file(f"fla/layers/{file}")
        return getattr(import_from(str(path)), name)(**options)

    return load


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.filterwarnings("ignore:The correction_factor")
def test_the_published_layer_is_theirs(kind: str, seed: int, their_layer: Callable[..., nn.Module]) -> None:
    *where, fields, options = LAYERS[kind]
    g = torch.Generator().manual_seed(seed)
    M, N, L = pick(g, 1, 3), pick(g, 2, 5), pick(g, 1, 12)
    cls = ARCHITECTURES.find(kind)
    expand = cls.PUBLISHED.get("expand", 1)
    D = 2 * M * N // expand  # values of 2 N channels per head
    spec = cls.published(embed_dim=D, state_dim=N, num_heads=M, num_layers=1, norm="none", residual=False, **fields)
    theirs = their_layer(*where, hidden_size=D, head_dim=N, num_heads=M, **{"expand_v": 2} | options)
    with torch.no_grad():
        for name, weight in theirs.named_parameters():
            weight.copy_(torch.randn(weight.shape, generator=g) * (0 if name == "g_proj.1.bias" else 1))
    layer = spec.blank_model(4).layers[0]
    layer.forward = layer.mix
    x = torch.randn(2, L, D, generator=g).requires_grad_()
    leaves = {"x": x, **{name: w for name, w in theirs.named_parameters() if name != "g_proj.1.bias"}}
    weights = as_ours(kind, dict(theirs.named_parameters()), M)
    assert weights.keys() == dict(layer.named_parameters()).keys()
    ours = functional_call(layer, weights, (x,))

    def expected() -> Weights:
        return output_and_gradients(theirs(x)[0], leaves)

    assert_agree(output_and_gradients(ours, leaves), expected, leaves.values())

"""The compiled kernels as operators of torch: what `torch.library.opcheck` asks, and `torch.compile` around them."""

import subprocess
import sys

import jaxtyping
import pytest
import torch
from torch.library import opcheck

from closeness import draw
from recallscope.ops import delta_scan, selective_scan, table_scan  # noqa: F401 (they define the operators)
from recallscope.ops.compiled import available

g = torch.Generator().manual_seed(0)
# opcheck compares kept states too, so all of them must be written: no padding of rows to 32, the last token asked
L, WIDE = 20, 32
POSITIONS = torch.tensor([[3, 19], [19, 0]])


def leaves(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [draw(g, *shape).requires_grad_() for shape in shapes]


def delta_inputs():
    q, k, a, b = leaves(*[(2, L, 2, 4)] * 4)
    v, q_asked, w = draw(g, 2, L, 2, WIDE), draw(g, 2, 2, 2, 4), draw(g, 2, L, 2, 4).sigmoid().requires_grad_()
    yield q, k, v, w, a, b, None, True
    yield q_asked.requires_grad_(), k, v, None, None, None, POSITIONS, True
    yield q.detach(), k.detach(), v, w.detach(), None, None, None, False


def selective_inputs():
    x, B, C, skip, bias, C_asked = leaves((2, L, WIDE), (2, L, 4), (2, L, 4), (WIDE,), (WIDE,), (2, 2, 4))
    delta, A = draw(g, 2, L, WIDE).sigmoid().requires_grad_(), draw(g, WIDE, 4).sigmoid().neg().requires_grad_()
    yield x, delta, A, B, C, None, None, None, False, True
    yield x, delta, A, B, C_asked, skip, bias, POSITIONS, True, True


def table_inputs():
    table = draw(g, 40, 2, 13).requires_grad_()
    ids = torch.randint(0, 40, (2, L), generator=g)
    yield table, ids, None, 2, 4, 1, 1, 1
    yield table, ids, POSITIONS, 2, 4, 1, 1, 1
    yield table, None, None, 2, 3, 2, 1, 1


CASES = {"delta_scan": delta_inputs, "selective_scan": selective_inputs, "table_scan": table_inputs}


@pytest.mark.skipif(not available(), reason="needs a C compiler")
@pytest.mark.parametrize("name", CASES)
def test_opcheck_passes(name: str) -> None:
    """Schema, autograd formula, shapes of the fake kernel, and the same gradients when traced (with symbols as sizes,
    which the checks of shapes do not take)."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        for inputs in CASES[name]():
            opcheck(getattr(torch.ops.recallscope, name).default, inputs)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_the_answer_of_available_is_a_constant_to_the_compiler() -> None:
    """The attribute that we set is the one torch sets."""
    marked = torch.compiler.assume_constant_result(lambda: True)
    assert vars(marked).items() <= vars(available).items()


COMPILED = """
import torch
from recallscope.architectures.model import build_model
from recallscope.specs import parse_model

for kind in ("delta_net", "mamba", "linear_mamba"):
    model = build_model(
        parse_model({"kind": kind, "embed_dim": 8, "state_dim": 4}), 16, torch.Generator().manual_seed(0)
    )
    tokens = torch.randint(0, 16, (3, 10), generator=torch.Generator().manual_seed(1))
    found = []
    for forward in (torch.compile(model, fullgraph=True, backend="aot_eager"), model):
        model.zero_grad()
        logits = forward(tokens)
        logits.square().sum().backward()
        found.append([logits, *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True)), kind
"""


@pytest.mark.slow
@pytest.mark.skipif(not available(), reason="needs a C compiler")
def test_a_compiled_model_is_one_graph_with_the_same_bits() -> None:
    """`fullgraph` fails at the first graph break. In a process of its own, without the checks of shapes."""
    done = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

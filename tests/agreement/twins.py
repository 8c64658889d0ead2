"""How two forms of one function are compared: the same values, and the same gradient for every input."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Form = Callable[..., Tensor]


def draw(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=dtype)


def values_and_gradients(form: Form, inputs: Mapping[str, Tensor], weight: Tensor) -> dict[str, Tensor]:
    """The output, and the gradient of <output, weight> by every floating input."""
    leaves = {name: x.detach().clone() for name, x in inputs.items()}
    asked = {name: x.requires_grad_() for name, x in leaves.items() if x.is_floating_point()}
    out = form(**leaves)
    found = torch.autograd.grad(out, list(asked.values()), weight)
    return {"output": out.detach(), **dict(zip(asked, found, strict=True))}


def assert_twins(
    fast: Form, plain: Form, inputs: Mapping[str, Tensor], *, rtol: float = 1e-9, atol: float = 1e-10
) -> None:
    """Fast and plain agree in the output and in every gradient, for a random weighting of the output."""
    weight = draw(torch.Generator().manual_seed(7), *plain(**inputs).shape)
    ours, theirs = (values_and_gradients(form, inputs, weight) for form in (fast, plain))
    for name, expected in theirs.items():
        torch.testing.assert_close(ours[name], expected, rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}")

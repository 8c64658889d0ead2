"""When two floating-point computations of the same thing agree, and how to compare a fast form with its plain twin.

Two correct implementations differ by rounding times conditioning, on any instruction set, so the error of single
entries is bounded by nothing: an entry may be a small difference of large terms. We compare whole tensors. The largest
error is counted in roundings, each as large as the larger of two things:

- the epsilon of the precision times the largest entry of the tensor;
- how far the plain form itself moves when each of its inputs is rounded once. This is looked at only where the first
  does not suffice: where terms cancel, or states grow.

Measured on one AVX2 machine, with MKL, torch and our kernels at lower instruction sets and with two threads: at most
8 roundings, 11 for rotated models, and 25 where two implementations add different epsilons. 200 leave room for other
CPUs; in float64 they are still 4e-14 of the largest entry, and the mistakes of `tests/mutations.py` (a sign, an index,
a factor, a missing term) are all found.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

Form = Callable[..., Tensor]
Results = Mapping[str, Tensor]

DECIMAL = re.compile(r"\d+\.\d+")
ROUNDINGS = 200
SUSPECT = 8  # beyond this the second kind of rounding is looked at


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(generator: torch.Generator, *shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=dtype)


@torch.no_grad()
def moved_off(module: torch.nn.Module, generator: torch.Generator, spread: float = 0.3) -> None:
    """Every weight is moved by normal noise: those that start at constants would hide mistakes."""
    for weight in module.parameters():
        weight += spread * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)


def epsilon(*tensors: Tensor) -> float:
    """Of the coarsest precision among them."""
    return max(torch.finfo(x.dtype).eps for x in tensors)


def roundings_apart(ours: Tensor, theirs: Tensor, *, rounding: float = 0.0) -> float:
    """The largest error, in units of eps times the largest entry of `theirs`, or of `rounding` if that is larger."""
    assert ours.shape == theirs.shape, f"{tuple(ours.shape)} is not {tuple(theirs.shape)}"
    if not theirs.numel():
        return 0.0
    error = float((ours.detach().double() - theirs.detach().double()).abs().max())
    return error / max(epsilon(ours, theirs) * float(theirs.detach().abs().max()), rounding) if error else 0.0


def assert_near(ours: Tensor, theirs: Tensor, what: str = "", *, terms: Tensor | float = 0.0) -> None:
    """Equal up to rounding, relative to the largest entry; or to the largest of the `terms` that were added up."""
    largest = float(torch.as_tensor(terms).detach().abs().max())
    apart = roundings_apart(ours, theirs, rounding=largest * epsilon(ours, theirs))
    assert apart <= ROUNDINGS, f"{what}: {apart:.3g} roundings apart, {ROUNDINGS} are allowed"


def assert_agree(ours: Results, plain: Callable[[], Results], inputs: Iterable[Tensor]) -> None:
    """`ours` against what `plain` computes from `inputs`, each result by its name; the inputs may be a module's."""
    theirs, moved = plain(), None
    for name, expected in theirs.items():
        apart = roundings_apart(ours[name], expected)
        if not apart <= SUSPECT:
            moved = moved or distance_moved(plain, theirs, list(inputs), epsilon(*ours.values()))
            apart = roundings_apart(ours[name], expected, rounding=moved[name])
        assert apart <= ROUNDINGS, f"{name}: {apart:.3g} roundings apart, {ROUNDINGS} are allowed"


def distance_moved(plain: Callable[[], Results], before: Results, inputs: list[Tensor], eps: float) -> dict[str, float]:
    """How far the results of `plain` move when every input is rounded once, up or down: the most in three draws."""
    moved, g = dict.fromkeys(before, 0.0), torch.Generator().manual_seed(11)
    for _ in range(3):
        with rounded(inputs, eps, g):
            after = plain()
        for name, value in before.items():
            if value.numel():
                moved[name] = max(moved[name], float((after[name] - value).abs().max()))
    return moved


@contextmanager
def rounded(inputs: list[Tensor], eps: float, generator: torch.Generator):
    """Every number x of the inputs is x (1 ± eps), signs at random; put back afterwards."""
    before = [x.detach().clone() for x in inputs]
    try:
        for x in inputs:
            sign = 2 * torch.randint(2, x.shape, generator=generator) - 1
            x.data.mul_(1 + (eps * sign).to(x.dtype))
        yield
    finally:
        for x, value in zip(inputs, before, strict=True):
            x.data.copy_(value)


def weighting(output: Tensor) -> Tensor:
    """Random, but the same for all outputs of one shape."""
    return draw(torch.Generator().manual_seed(7), *output.shape).to(output.dtype)


def output_and_gradients(
    output: Tensor, inputs: Mapping[str, Tensor], *, may_be_unused: bool = False
) -> dict[str, Tensor]:
    """The output, and the gradient of <output, weighting> by every input."""
    leaves, weight = list(inputs.values()), weighting(output)
    found = torch.autograd.grad(output, leaves, weight, materialize_grads=may_be_unused)
    return {"output": output.detach(), **dict(zip(inputs, found, strict=True))}


def assert_twins(fast: Form, plain: Form, inputs: Mapping[str, Tensor], *, dtype: torch.dtype | None = None) -> None:
    """Fast and plain agree in the output and in the gradient by every floating input; `dtype` is the fast form's."""

    def results(form: Form, dtype: torch.dtype | None) -> tuple[Callable[[], Results], list[Tensor]]:
        given = {name: x.detach().clone() for name, x in inputs.items()}
        leaves = {name: x.to(dtype or x.dtype).requires_grad_() for name, x in given.items() if x.is_floating_point()}
        return lambda: output_and_gradients(form(**(given | leaves)), leaves), list(leaves.values())

    ours, (theirs, leaves) = results(fast, dtype)[0](), results(plain, None)
    assert_agree(ours, theirs, leaves)


def assert_threads_change_no_bit(compute: Callable[[], Iterable[Tensor]], *counts: int) -> None:
    """The same results, bit for bit, with one thread and with each of the counts."""
    before, found = torch.get_num_threads(), []
    try:
        for count in (1, *counts):
            torch.set_num_threads(count)
            found.append(list(compute()))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(one, two) for one, two in zip(found[0], other, strict=True))


def assert_same_text(ours: str, committed: str, remedy: str = "") -> None:
    """Equal but for the last digit of decimals, which another CPU may round the other way."""
    assert DECIMAL.split(ours) == DECIMAL.split(committed), remedy
    for one, other in zip(DECIMAL.findall(ours), DECIMAL.findall(committed), strict=True):
        last_digit = 10.0 ** -len(other.partition(".")[2])
        assert abs(float(one) - float(other)) < 1.5 * last_digit, f"{one} is not {other}. {remedy}"

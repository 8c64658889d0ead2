"""Initial weights: torch's default distributions, drawn from a generator that the caller passes in.

Numbers are drawn on the generator's device, then moved: a CPU generator gives the same weights everywhere.
"""

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor


@torch.no_grad()
def draw_normal(weight: Tensor, std: float, generator: torch.Generator) -> None:
    """N(0, std²), as `nn.Embedding`."""
    weight.copy_(_blank(weight, generator).normal_(0, std, generator=generator))


@torch.no_grad()
def draw_uniform(weight: Tensor, fan_in: int, generator: torch.Generator) -> None:
    """U(±1/√fan_in), as weights and biases of `nn.Linear` and `nn.Conv1d` (kaiming_uniform with a = √5)."""
    bound = fan_in**-0.5
    weight.copy_(_blank(weight, generator).uniform_(-bound, bound, generator=generator))


@torch.no_grad()
def draw_log_uniform(weight: Tensor, low: float, high: float, generator: torch.Generator) -> None:
    """exp of U(log low, log high)."""
    log_low, log_high = torch.tensor([low, high], dtype=torch.float64).log().tolist()
    weight.copy_(_blank(weight, generator).uniform_(log_low, log_high, generator=generator).exp_())


def _blank(weight: Tensor, generator: torch.Generator) -> Tensor:
    return torch.empty(weight.shape, dtype=weight.dtype, device=generator.device)


def drawn_seed(generator: torch.Generator) -> int:
    """A seed taken from a generator, for what cannot be handed the generator itself."""
    return int(torch.randint(2**62, (), generator=generator, device=generator.device))


@contextlib.contextmanager
def lent_stream(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Torch's global stream with a given seed, for modules that draw from it; put back as it was afterwards."""
    place = torch.device(device)
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
        torch.set_rng_state(torch.Generator().manual_seed(seed).get_state())
        if place.type == "cuda":
            torch.cuda.set_rng_state(torch.Generator(place).manual_seed(seed).get_state(), place)
        yield

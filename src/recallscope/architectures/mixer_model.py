"""The model behind a `MixerSpec`: embedding, then norm, short convolution and mixer with a residual, norm, head."""

import inspect
from collections.abc import Callable

from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from recallscope.architectures.mixer import MixerSpec
from recallscope.architectures.model import seeded_global_rng
from recallscope.architectures.user_module_model import UserModule, UserModuleError, _their_code, shown_arguments

WIDTHS = ("d_model", "hidden_size", "dim", "width", "embed_dim", "n_embd", "d")  # what mixers call their width


class Block(nn.Module):
    """x + mixer(conv(norm(x))), the convolution causal and one per channel."""

    def __init__(self, mixer: nn.Module, width: int, taps: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.taps = taps
        self.conv = nn.Conv1d(width, width, taps, groups=width) if taps > 1 else None
        self.mixer = mixer

    def forward(self, x: Float[Tensor, "batch L D"]) -> Float[Tensor, "batch L D"]:
        """One layer; of a mixer that returns several things, the first."""
        u = self.norm(x)
        if self.conv is not None:
            u = self.conv(pad(u.mT, (self.taps - 1, 0))).mT.contiguous()
        mixed = self.mixer(u)
        mixed = mixed[0] if isinstance(mixed, tuple) else mixed
        if not isinstance(mixed, Tensor) or mixed.shape != x.shape:
            got = tuple(mixed.shape) if isinstance(mixed, Tensor) else type(mixed).__name__
            raise ValueError(f"the mixer was given {tuple(x.shape)} and returned {got}: batch, length, width are asked")
        return x + mixed


class MixerNet(nn.Module):
    """The whole model."""

    def __init__(self, mixers: list[nn.Module], vocab_size: int, width: int, taps: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width)
        self.blocks = nn.Sequential(*(Block(mixer, width, taps) for mixer in mixers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocab_size)

    def forward(self, tokens: Int[Tensor, "batch L"]) -> Float[Tensor, "batch L V"]:
        """Logits after every token."""
        return self.head(self.norm(self.blocks(self.embed(tokens))))


class MixerModel(UserModule):
    """The user's mixers in a model."""

    spec: MixerSpec

    def _constructed(self, seed: int) -> nn.Module:
        spec, make = self.spec, self._imported()
        name = _width_argument(make)
        width = {name: spec.width} if name else {}
        shown = shown_arguments(width | spec.arguments)
        with seeded_global_rng(seed), _their_code(f"{spec.kind} is called with {shown or spec.width}, and failed"):
            made = [
                make(**width, **spec.arguments) if name else make(spec.width, **spec.arguments)
                for _ in range(spec.num_layers)
            ]
            net = MixerNet(made, self.vocab_size, spec.width, spec.short_conv)
        if not all(isinstance(mixer, nn.Module) for mixer in made):
            raise UserModuleError(f"{spec.kind} gave a {type(made[0]).__name__}, not a torch.nn.Module.")
        return net


def _width_argument(make: Callable[..., object]) -> str | None:
    """What the constructor calls the width; None if it is the first argument under another name."""
    try:
        names = inspect.signature(make).parameters
    except ValueError:
        return None
    return next((name for name in WIDTHS if name in names), None)

"""RecallModel: what training, evaluation and probes ask of a model.

The least a model does is `forward`: tokens in, logits out. All else has a default that follows from it. A model that
can do better overrides the default. What only some models can do is a protocol in `capabilities.py`: code that needs
it asks for the protocol, and says what it leaves out if the model does not have it.

Initial weights have torch's default distributions, drawn from a generator that the caller passes in. Numbers are drawn
on the generator's device, then moved: a CPU generator gives the same weights everywhere.
"""

import contextlib
import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from recallscope.architectures.capabilities import lack
from recallscope.ops.linear_scan import at_positions
from recallscope.specs import ModelSpec
from recallscope.tasks.batch import Batch

P = TypeVar("P")
M = TypeVar("M", bound=nn.Module)
TOKENS_AT_ONCE = 2**14  # of a batch on its way through a model: temporaries stay in the cache
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)  # what weights may be stored in


class MissingCapabilityError(ValueError):
    """The model cannot do what it was asked for; the message says why."""


class RecallModel(nn.Module, ABC):
    """Base of all models. A new one is blank; `draw_weights` fills it, or a circuit or a file does."""

    draws_noise = False  # whether a training step reads torch's global random stream (dropout)

    def __init__(self, spec: ModelSpec, vocab_size: int) -> None:
        super().__init__()
        self.spec = spec
        self.vocab_size = vocab_size

    @abstractmethod
    def forward(self, tokens: Int[Tensor, "batch L"]) -> Float[Tensor, "batch L V"]:
        """Logits after every token."""

    def draw_weights(self, generator: torch.Generator, *, embedding_std: float = 1.0) -> None:
        """Overwrite all weights with a fresh draw from the generator and from nothing else.

        By default torch's own: `reset_parameters` of every part. A model with parameters beside them says how to draw
        those by overriding this.
        """
        parts = [part for part in self.modules() if hasattr(part, "reset_parameters")]
        drawn = {id(weight) for part in parts for weight in part.parameters(recurse=False)}
        own = [name for name, weight in self.named_parameters() if id(weight) not in drawn]
        if own:
            raise NotImplementedError(
                f"{type(self).__name__}.{own[0]} is a parameter that torch has no default for: override draw_weights."
            )
        with seeded_global_rng(drawn_seed(generator)):
            for part in parts:
                part.reset_parameters()  # type: ignore[operator]
        with torch.no_grad():
            for part in parts:
                if isinstance(part, nn.Embedding):
                    part.weight.mul_(embedding_std)

    def answer(self, tokens: Int[Tensor, "batch L"], positions: Int[Tensor, "batch Q"]) -> Float[Tensor, "batch Q V"]:
        """`forward` at the given positions."""
        return at_positions(self(tokens), positions)

    def best_tokens(self, tokens: Int[Tensor, "batch L"], positions: Int[Tensor, "batch Q"]) -> Int[Tensor, "batch Q"]:
        """The token with the largest logit at each position."""
        return self.answer(tokens, positions).argmax(dim=-1)

    def loss(self, batch: Batch, label_smoothing: float) -> Float[Tensor, ""]:
        """Mean cross-entropy at the queries."""
        logits = self.answer(batch.tokens, batch.query_positions)
        return cross_entropy(logits.flatten(0, 1), batch.answers.flatten(), label_smoothing=label_smoothing)

    def add_gradients(self, batch: Batch, label_smoothing: float) -> Float[Tensor, ""]:
        """The loss of a batch; its gradients are added to the parameters'. A part of the batch at a time."""
        total = torch.zeros((), device=batch.tokens.device)
        for part in batch.split(max(1, TOKENS_AT_ONCE // batch.tokens.shape[1])):
            loss, share = self.loss(part, label_smoothing), len(part) / len(batch)  # as many queries in each sequence
            loss = loss if share == 1 else loss * share
            loss.backward()
            total = total + loss.detach()
        return total

    def undecayed(self) -> frozenset[str]:
        """Names of the parameters that weight decay must leave alone."""
        return frozenset()

    def capability(self, protocol: type[P]) -> P | None:
        """This model as something that can do what a protocol of `capabilities.py` asks; None if it cannot."""
        return cast(P, self) if self.why_not(protocol) is None else None

    def require(self, protocol: type[P]) -> P:
        """The same, or a MissingCapabilityError that says why not."""
        able = self.capability(protocol)
        if able is None:
            raise MissingCapabilityError(f"{self.why_not(protocol)}.")
        return able

    def why_not(self, protocol: type) -> str | None:
        """Why the model cannot do what a protocol asks, as a sentence without its stop; None if it can."""
        return None if isinstance(self, protocol) else lack(self.spec.kind or type(self).__name__, protocol)

    def check_batch(self, batch: Batch) -> None:
        """Raise a ValueError that explains it if the model cannot be trained on such batches."""

    def why_not_saved(self) -> str | None:
        """Why a file with spec and weights would not give the model back; None if it would."""
        return None


def build_model(
    spec: ModelSpec,
    vocab_size: int,
    generator: torch.Generator,
    *,
    embedding_std: float = 1.0,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> RecallModel:
    """The model a spec describes, weights drawn from `generator` and from nothing else.

    Paper: App. K.2 names the code bases; initial weights are theirs.
    """
    with torch.device("cpu"):
        model = spec.blank_model(vocab_size)
    model.to(device=torch.get_default_device() if device is None else device, dtype=dtype)
    model.draw_weights(generator, embedding_std=embedding_std)
    return model


def read_tensors(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Header and tensors of a safetensors file."""
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no dict)
    except (SafetensorError, TypeError) as error:  # a TypeError of a shape that torch cannot count
        raise ValueError(f"{path} is not a safetensors file ({str(error).splitlines()[0]}).") from error


def check_shapes(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], path: Path, source: str) -> None:
    """Refuse tensors of a file that are not those of the model it describes, before that model takes any memory."""
    for name in sorted({*wanted, *found}):
        here, there = (tuple(of[name].shape) if name in of else "none" for of in (wanted, found))
        if here != there:
            raise ValueError(
                f"{path}: tensors and {source} disagree. {name} is of shape {here} by the {source}, and {there} in the "
                f"file."
            )


def load_weights(model: RecallModel, tensors: Mapping[str, Tensor], path: Path | str) -> None:
    """Fill a blank model with the tensors of a file; ValueError if they are not its own, or are no weights."""
    check_weights({name: tensor for name, tensor in tensors.items() if _is_float(model.state_dict().get(name))}, path)
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        why = " ".join(str(error).split())
        raise ValueError(f"{path} does not fit {model.spec.kind}: {why[:500]}") from error


def check_weights(tensors: Mapping[str, Tensor], path: Path | str) -> None:
    """Refuse tensors that would be loaded as weights and are not finite floating-point numbers."""
    for name, tensor in tensors.items():
        if not _is_float(tensor):
            raise ValueError(
                f"{path}: {name} holds numbers of type {str(tensor.dtype).removeprefix('torch.')}, and weights are "
                f"floating-point numbers. If it was quantised, save it in float32, float16 or bfloat16."
            )
        wrong = tensor.numel() - int(tensor.float().isfinite().sum())
        if wrong:
            raise ValueError(
                f"{path}: {wrong:,} of {tensor.numel():,} numbers of {name} are NaN or infinite: the run diverged, or "
                f"the file is damaged. Train again, with a smaller learning rate if it diverged."
            )


def _is_float(tensor: Tensor | None) -> bool:
    return tensor is not None and tensor.dtype in FLOATS


def skip_init(make: type[M], *sizes: int, **options: Any) -> M:
    """A module of torch's without weights drawn, as torch's `skip_init`, and on the device that is torch's default."""
    return cast(M, torch.nn.utils.skip_init(make, *sizes, device=torch.get_default_device(), **options))


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
    log_low, log_high = torch.tensor([low, high], dtype=torch.float64, device="cpu").log().tolist()
    weight.copy_(_blank(weight, generator).uniform_(log_low, log_high, generator=generator).exp_())


def _blank(weight: Tensor, generator: torch.Generator) -> Tensor:
    return torch.empty(weight.shape, dtype=weight.dtype, device=generator.device)


def drawn_seed(generator: torch.Generator) -> int:
    """A seed taken from a generator, for what cannot be handed the generator itself."""
    return int(torch.randint(2**62, (), generator=generator, device=generator.device))


@contextlib.contextmanager
def seeded_global_rng(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """The global streams of torch, numpy and Python with a given seed, for modules that draw from them.

    Afterwards they are as they were. A generator that a module makes itself, such as `np.random.default_rng()`, is its
    own affair: without a seed its numbers are other ones each time.
    """
    place = torch.device(device)
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 (the streams that modules use)
    try:
        with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
            torch.set_rng_state(torch.Generator("cpu").manual_seed(seed).get_state())
            if place.type == "cuda":
                torch.cuda.set_rng_state(torch.Generator(place).manual_seed(seed).get_state(), place)
            random.setstate(random.Random(seed).getstate())  # noqa: S311
            np.random.set_state(np.random.RandomState(seed % 2**32).get_state())  # noqa: NPY002
            yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002

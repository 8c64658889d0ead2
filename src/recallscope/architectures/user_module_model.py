"""The model behind an `ModuleSpec`: a user's module, imported, checked, and given the interface of every model."""

import contextlib
import copy
import hashlib
import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad

from recallscope.architectures.model import RecallModel, drawn_seed, seeded_global_rng
from recallscope.architectures.user_module import MixerSpec, ModuleSpec, place_of, source_file
from recallscope.ops.linear_scan import at_positions
from recallscope.registry import import_from, source_digest
from recallscope.specs import TaskSpec
from recallscope.tasks.batch import Batch
from recallscope.tasks.drawing import sample_batch

P = TypeVar("P")
IN_MEMORY = "in-memory"  # in the place of a file: a module or function that only this process has
LOOKAHEAD = 1e-3  # of the largest logit: what rounding may change, and reading the future does not stay below
_IN_MEMORY: dict[str, Callable[..., nn.Module]] = {}  # by digest


class UserModuleError(ValueError):
    """The user's module cannot be used as it is; the message says what it does and what is asked of it."""


@contextlib.contextmanager
def _their_code(failed: str) -> Iterator[None]:
    """Run code of the user's: its exceptions are told as theirs, and what it prints goes to stderr."""
    try:
        with contextlib.redirect_stdout(sys.stderr), _exit_told():
            yield
    except (Exception, SystemExit) as error:
        raise UserModuleError(f"{failed}: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def _exit_told() -> Iterator[None]:
    """Make `os._exit` in this thread an exception: it would end the command with no word. Forked children may exit."""
    leave, owner = os._exit, (os.getpid(), threading.get_ident())

    def refuse(status: int) -> NoReturn:
        if (os.getpid(), threading.get_ident()) != owner:
            leave(status)
        raise SystemExit(f"os._exit({status})")

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = leave


class UserModule(RecallModel):
    """A module of the user's own, as `module`. Its constructor draws its weights; dropout and the like are seeded."""

    spec: ModuleSpec
    draws_noise = True
    without_gradient: tuple[str, ...] = ()  # parameters that the rehearsal's backward pass did not reach
    not_judged: str = ""  # why the rehearsal could not tell whether it looks ahead

    def __init__(self, spec: ModuleSpec, vocab_size: int) -> None:
        super().__init__(spec, vocab_size)
        self.module = self._constructed(seed=0)

    def forward(self, tokens: Int[Tensor, "batch L"]) -> Float[Tensor, "batch L V"]:
        """What the module returns; of an object with `logits`, those."""
        with _their_code(f"{self._call(tokens)} failed"):
            output = self.module(tokens)
        logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
        if not isinstance(logits, Tensor):
            raise UserModuleError(
                f"{self._call(tokens)} returned a {type(output).__name__}: return the logits alone, or an object that "
                f"has them as its attribute logits."
            )
        shape = (*tokens.shape, self.vocab_size)
        if tuple(logits.shape) != shape:
            raise UserModuleError(
                f"{self._call(tokens)} returned {tuple(logits.shape)}, not logits of shape {shape}: batch, length, "
                f"vocabulary."
            )
        if not logits.is_floating_point():
            raise UserModuleError(
                f"{self._call(tokens)} returned {logits.dtype}, and logits are floating-point numbers."
            )
        if not self.training and not bool(logits.isfinite().all()):  # in training, the loss tells
            raise UserModuleError(f"{self._call(tokens)} returned NaN or infinity.")
        return logits

    def add_gradients(self, batch: Batch, label_smoothing: float) -> Float[Tensor, ""]:
        """As of every model; its backward pass may be the user's code, too."""
        try:
            with _exit_told():
                return super().add_gradients(batch, label_smoothing)
        except SystemExit as error:
            raise UserModuleError(f"{self.spec.kind}: its backward pass called {error}") from error

    def _call(self, tokens: Tensor) -> str:
        """The call of the module, in words."""
        mode = "" if self.training else " in evaluation,"
        return f"{self.spec.kind}: forward(tokens),{mode} tokens of shape {tuple(tokens.shape)},"

    def draw_weights(self, generator: torch.Generator, *, embedding_std: float = 1.0) -> None:
        """Construct the module anew, with torch's global stream seeded from the generator and put back afterwards."""
        if embedding_std != 1:
            raise UserModuleError(
                f"embedding_std={embedding_std} cannot be applied to {self.spec.kind}: its constructor draws its "
                f"weights. Leave embedding_std out, and scale the embedding there."
            )
        first, fresh = next(self.module.parameters()), self._constructed(drawn_seed(generator))
        if next(fresh.parameters()).dtype != first.dtype:  # another type was asked for than its constructor's
            fresh.to(first.dtype)
        self.module = fresh.to(first.device)

    def capability(self, protocol: type[P]) -> P | None:
        """The module itself, if it can do what the protocol asks."""
        return self.module if isinstance(self.module, protocol) else super().capability(protocol)

    def why_not(self, protocol: type) -> str | None:
        """The module has not the methods of the protocol."""
        return None if isinstance(self.module, protocol) else super().why_not(protocol)

    def check_batch(self, batch: Batch) -> None:
        """A rehearsal, forwards and backwards, to say at once what is wrong with the module."""
        called = self._call(batch.tokens)
        with seeded_global_rng(0, batch.tokens.device), torch.enable_grad():
            logits = self(batch.tokens)
            if not bool(logits.isfinite().all()):
                raise UserModuleError(
                    f"{called} returned NaN or infinity before any training. Check its initial weights."
                )
            if not logits.requires_grad:
                raise UserModuleError(f"{called} returned logits that no parameter has a gradient of: it cannot learn.")
            with _their_code(f"{called} succeeded, and the backward pass failed"):
                at_positions(logits, batch.query_positions).square().mean().backward()
            self.without_gradient = tuple(
                name for name, weight in self.module.named_parameters() if weight.requires_grad and weight.grad is None
            )
            self.zero_grad(set_to_none=True)
            self.check_causality(batch.tokens)

    @torch.no_grad()
    def check_causality(self, tokens: Int[Tensor, "batch L"]) -> None:
        """Change the later half of the first sequence: its logits before that must stay as they are, up to rounding.

        Every call has the same global random numbers. Nothing is said of a module that gives other logits for the same
        tokens (noise of a generator of its own, a state kept between calls), nor of one whose logits of the other
        sequences move too (statistics over the batch): what moved the logits is then not known.
        """
        training, half = self.training, tokens.shape[1] // 2
        self.eval()
        changed = tokens.clone()
        changed[0, half:] = (tokens[0, half:] + 1) % self.vocab_size
        calls = []
        for some in (tokens, changed, tokens, changed):
            with seeded_global_rng(0, tokens.device):
                calls.append(self(some))
        self.train(training)
        before, after, before_again, after_again = calls
        rounding = LOOKAHEAD * before.abs().amax().clamp(min=1e-30)

        def differ(one: Tensor, other: Tensor) -> Tensor:
            return (one - other).abs() > rounding

        known = not bool(differ(before, before_again).any() | differ(after, after_again).any())
        moved = differ(before, after)
        alone = not bool(moved[1:].any())
        moved = moved[0, :half].any(-1)
        if not known:
            self.not_judged = "it gives other logits for the same tokens"
        elif not alone:
            self.not_judged = "the logits of a sequence depend on the others of its batch"
        if known and alone and bool(moved.any()):
            where = int(moved.nonzero()[0])
            raise UserModuleError(
                f"{self._call(tokens)} looks ahead: the logits after token {where} change if tokens {half} and later "
                f"do, so it could read the future. Make it causal, such as with a causal attention mask."
            )

    def _constructed(self, seed: int) -> nn.Module:
        """The module; `vocab_size` is not handed to a constructor that does not take it."""
        spec, make = self.spec, self._imported()
        given = {"vocab_size": self.vocab_size, **spec.arguments}
        try:
            signature = inspect.signature(make)
        except ValueError:  # there is none to be had: the call itself tells
            signature = None
        named = signature.parameters.values() if signature else ()
        if signature and not any(one.name == "vocab_size" or one.kind is one.VAR_KEYWORD for one in named):
            del given["vocab_size"]
        call = f"{spec.kind} is called with {shown_arguments(given) or 'nothing'}"
        try:
            if signature:
                signature.bind(**given)
        except TypeError as error:
            raise UserModuleError(
                f"{call}, and takes {signature}: {error}. Arguments of its constructor are flags, or --model-args "
                f"'{{\"width\": 32}}'; a function that makes the module may stand in for its class."
            ) from error
        with seeded_global_rng(seed), _their_code(f"{call}, and failed"):
            module = make(**given)
        if not isinstance(module, nn.Module):
            raise UserModuleError(f"{call}, and gave a {type(module).__name__}, not a torch.nn.Module.")
        if not any(parameter.requires_grad for parameter in module.parameters()):
            raise UserModuleError(f"{call}, and has no parameters to train.")
        return module

    def _imported(self) -> Any:
        place, name = place_of(self.spec.kind), self.spec.kind.rpartition(":")[2]
        if place == IN_MEMORY:
            if self.spec.digest not in _IN_MEMORY:
                raise UserModuleError(
                    f"{self.spec.kind} was in the memory of another process. Name it by its file, my_nets.py:Net."
                )
            return _IN_MEMORY[self.spec.digest]
        found = source_digest(source_file(place))
        if found != self.spec.digest:
            raise UserModuleError(
                f"{source_file(place)} has changed since this run was named (digest {self.spec.digest}, now {found}): "
                f"its weights or checkpoint belong to the earlier file. Restore that file, or start a new run."
            )
        with _their_code(f"importing {place} failed"):
            module = import_from(place)
        made = getattr(module, name, None)
        if made is None:
            there = [
                key for key, value in vars(module).items() if isinstance(value, type) and issubclass(value, nn.Module)
            ]
            raise UserModuleError(f"{place} has no {name!r}; modules in it: {', '.join(there) or 'none'}.")
        if not callable(made) or isinstance(made, nn.Module):
            raise UserModuleError(f"{self.spec.kind} is a {type(made).__name__}, not a class or a function.")
        return made


def shown_arguments(given: dict[str, Any]) -> str:
    """As a call has them."""
    return ", ".join(f"{name}={value!r}" for name, value in given.items())


def module_in_memory(made: nn.Module | Callable[..., nn.Module], **arguments: Any) -> ModuleSpec:
    """The spec of a module that this process has, or of a class or function that makes one; known to no other process.

    A module is copied, with the weights that it has now. A class or function is called with `vocab_size`, if it takes
    that, and the arguments.
    """
    name = (type(made) if isinstance(made, nn.Module) else made).__name__
    digest = _digest_of(made)
    _IN_MEMORY[digest] = (lambda: copy.deepcopy(made)) if isinstance(made, nn.Module) else made
    name = name if name.isidentifier() else "module"
    return ModuleSpec.model_validate({"kind": f"{IN_MEMORY}:{name}", "digest": digest, **arguments})


def _digest_of(made: Any) -> str:
    """16 hex digits of what a module or function is: its source and, of a module, its structure and its weights."""
    digest = hashlib.sha256()
    source = type(made) if isinstance(made, nn.Module) else made
    with contextlib.suppress(OSError, TypeError):
        digest.update(inspect.getsource(source).encode())
    digest.update(getattr(source, "__qualname__", "").encode())
    if isinstance(made, nn.Module):
        digest.update(repr(made).encode())
        for name, tensor in made.state_dict().items():
            numbers = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
            digest.update(name.encode() + numbers.tobytes())
    return digest.hexdigest()[:16]


def as_recall_model(module: nn.Module, task: TaskSpec) -> RecallModel:
    """A module with the interface of every model: our own as it is, another's copied. It may know more tokens."""
    if isinstance(module, RecallModel):
        return module
    device = next((weight.device for weight in module.parameters()), torch.device("cpu"))
    tokens, wrapped = sample_batch(task, 2, 0).tokens.to(device), UserModule(module_in_memory(module), task.vocab_size)
    with torch.no_grad(), _their_code(f"forward(tokens), tokens of shape {tuple(tokens.shape)}, failed"):
        output = wrapped.module.eval()(tokens)
    logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if isinstance(logits, Tensor) and logits.ndim == 3 and logits.shape[2] > task.vocab_size:
        wrapped.vocab_size = logits.shape[2]
    wrapped.check_causality(tokens)
    return wrapped


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
    """The user's mixers in a model: embedding; norm, short convolution and mixer with a residual; norm, head."""

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

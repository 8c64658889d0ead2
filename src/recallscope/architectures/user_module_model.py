"""The model behind an `ModuleSpec`: a user's module, imported, checked, and given the interface of every model."""

import contextlib
import inspect
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any, NoReturn, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from recallscope.architectures.model import RecallModel, drawn_seed, seeded_global_rng
from recallscope.architectures.user_module import ModuleSpec, source_file
from recallscope.registry import import_from, source_digest
from recallscope.tasks.batch import Batch

P = TypeVar("P")


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
        """One forward pass, to say at once what is wrong with the module."""
        called, shape = self._call(batch.tokens), (*batch.tokens.shape, self.vocab_size)
        with seeded_global_rng(0, batch.tokens.device):
            logits = self(batch.tokens)
        if tuple(logits.shape) != shape:
            raise UserModuleError(
                f"{called} returned {tuple(logits.shape)}, not logits of shape {shape}: batch, length, vocabulary."
            )
        if not logits.is_floating_point():
            raise UserModuleError(f"{called} returned {logits.dtype}, and logits are floating-point numbers.")
        if not bool(logits.isfinite().all()):
            raise UserModuleError(f"{called} returned NaN or infinity before any training. Check its initial weights.")
        if not logits.requires_grad:
            raise UserModuleError(f"{called} returned logits that no parameter has a gradient of: it cannot learn.")

    def _constructed(self, seed: int) -> nn.Module:
        spec = self.spec
        make = self._imported()
        call = f"{spec.kind} is called with vocab_size={self.vocab_size}" + "".join(
            f", {name}={value!r}" for name, value in spec.arguments.items()
        )
        try:
            signature = inspect.signature(make)
            signature.bind(vocab_size=self.vocab_size, **spec.arguments)
        except TypeError as error:
            raise UserModuleError(f"{call}, and takes {signature}: {error}.") from error
        except ValueError:  # no signature to be had: the call itself tells
            pass
        with seeded_global_rng(seed), _their_code(f"{call}, and failed"):
            module = make(vocab_size=self.vocab_size, **spec.arguments)
        if not isinstance(module, nn.Module):
            raise UserModuleError(f"{call}, and gave a {type(module).__name__}, not a torch.nn.Module.")
        if not any(parameter.requires_grad for parameter in module.parameters()):
            raise UserModuleError(f"{call}, and has no parameters to train.")
        return module

    def _imported(self) -> Any:
        place, _, name = self.spec.kind.rpartition(":")
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
        if not callable(made):
            raise UserModuleError(f"{self.spec.kind} is a {type(made).__name__}, not a class or a function.")
        return made

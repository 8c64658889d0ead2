"""The effective state size of a model: how many numbers carry the context past a point of the sequence.

It is measured from outside, in the same way for every model, ours included. All that a model says after a cut depends
on what stood before it through its state alone. So the gradients of later logits with respect to earlier inputs span at
most as many dimensions as the state has numbers, and their rank counts those. All rows of a batch share the tokens up
to the cut, each continues in its own way and asks for a random combination of the logits that follow: one backward pass
gives one gradient per row, in float64. The context is doubled until the rank stays the same.

This is the effective state size of Parnichkun et al. (arXiv 2504.19561), with a tolerance at the precision of float64,
of the whole model instead of one layer.

Beside it stands what the model *stores*: declared by its architecture, or counted in the state that it shows. Numbers
that are stored and never read do not count as effective (a linear Mamba stores 2 D N numbers and reads D N of them).

Limits. A rank that grows with every doubling is no state of fixed size, such as attention's, or one that is too large
to be followed; it is given as entries per token. The tokens right after the cut are shared, too, so that the windows of
convolutions do not count as memory; where numbers fade so fast that no clear rank is left after that gap, a shorter one
is taken.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.overrides import TorchFunctionMode

from recallscope.architectures.capabilities import HasState
from recallscope.architectures.model import TOKENS_AT_ONCE, RecallModel, drawn_seed

LARGEST_RANK = 1024  # beyond, a measurement takes minutes
SHORTEST, LONGEST = 8, 256  # tokens before the cut
SHORTER = (2, 4)  # where a memory is so large that even the shortest context is too long to be followed
GAPS = (6, 12)  # tokens after it that rows share: a convolution of width 4 sees 3 in each layer
SHORT_GAPS = (3, 0)  # for memories that fade within so many tokens
SUFFIX = 8  # tokens after those, whose logits are asked for
CLEAR = (1e-12, 1e-14)  # singular values over the largest: a rank that is the same at both is clear
BYTES = 4  # of a number in float32


@dataclass(frozen=True)
class StateSize:
    """Numbers that carry the context; None, with the reason, where they could not be counted."""

    entries: int | None  # effective
    how: str
    grows: bool = False  # with every doubling of the context, as far as it was followed
    ranks: tuple[tuple[int, int], ...] = ()  # tokens before the cut, and the numbers that passed it
    stored: int | None = None  # entries of the state, read or not
    per_token: float | None = None  # of a memory that grows

    @property
    def bytes(self) -> int | None:
        """Of what is stored, or else of what is effective, in float32."""
        size = self.stored or self.entries
        return None if size is None else BYTES * size


def state_size(model: RecallModel, generator: torch.Generator) -> StateSize:
    """Measured, for every model alike; and what it stores, where that is known."""
    return replace(measured_state(model, generator), stored=stored_entries(model, generator))


def stored_entries(model: RecallModel, generator: torch.Generator) -> int | None:
    """As the architecture declares it, else counted in the state that the model shows; None if neither is fixed."""
    if model.spec.state_entries is not None:
        return model.spec.state_entries
    able = model.capability(HasState)
    if able is None:
        return None
    drawn = [torch.randint(model.vocab_size, (1, length), generator=generator) for length in (SHORTEST, LONGEST)]
    with torch.no_grad():
        sizes = {sum(state.numel() for state in able.state_after(tokens)) for tokens in drawn}
    return sizes.pop() if len(sizes) == 1 else None


def measured_state(model: RecallModel, generator: torch.Generator) -> StateSize:
    """The rank of what passes a cut of the sequence."""
    try:
        subject = copy.deepcopy(model).to("cpu", torch.float64).eval()
        found = _followed(subject, GAPS[0], generator)
        if found.entries is not None:  # clear: with a longer gap it is the same, or less by windows of deep models
            longer = _followed(subject, GAPS[1], generator)
            found = found if longer.entries is None else longer
        for gap in SHORT_GAPS:
            if found.entries is None and not found.grows:
                found = _followed(subject, gap, generator)
    except _NotMeasurableError as error:
        return StateSize(None, f"not measured: {error}")
    except Exception as error:  # somebody else's code may do anything in float64, or at another length
        first = (str(error).splitlines() or [""])[0]
        why = f"the model fails in float64, or at such lengths ({type(error).__name__}: {first})"
        return StateSize(None, f"not measured: {why}")
    return found


def _followed(model: RecallModel, gap: int, generator: torch.Generator) -> StateSize:
    """Double the context until the rank is clear and stays the same."""
    ranks: list[tuple[int, int]] = []
    length, before, low, high = SHORTEST, -1, 0, 0
    while length <= LONGEST and high < LARGEST_RANK:
        try:
            low, high = _rank(model, length, gap, generator, expected=high)
        except Exception:  # such as beyond its last position: as far as it goes
            if len(ranks) < 3:
                raise
            break
        ranks.append((length, high))
        if low == high == before < LARGEST_RANK:
            window = "" if gap else ", windows of a few tokens included"
            how = f"measured: rank of what passes a cut of the sequence after {length // 2} and {length} tokens{window}"
            return StateSize(high, how, ranks=tuple(ranks))
        length, before = 2 * length, high if low == high else -1
    if len(ranks) < 3:  # too large at once
        shorter = [(some, _rank(model, some, gap, generator, expected=0)[1]) for some in SHORTER]
        ranks = [*shorter, *ranks]
    seen = [(tokens, size) for tokens, size in ranks if size < LARGEST_RANK]
    if len(seen) > 1 and all(more > 1.5 * some for (_, some), (_, more) in pairwise(seen)):
        (T, some), (longer, more) = seen[0], seen[-1]
        each = (more - some) / (longer - T)
        how = (
            f"it grows with the context, as attention's, or is larger than could be followed (up to {longer} tokens "
            f"and {LARGEST_RANK:,} entries): {some} numbers pass a cut after {T} tokens, {more} after {longer}"
        )
        return StateSize(None, how, True, tuple(ranks), per_token=each)
    return StateSize(
        None, f"not measured: between {low} and {high} numbers pass a cut, not clearly", ranks=tuple(ranks)
    )


class _NotMeasurableError(ValueError):
    """The model does not give what a measurement needs."""


def _rank(model: RecallModel, length: int, gap: int, generator: torch.Generator, *, expected: int) -> tuple[int, int]:
    """Numbers that pass the cut after `length` tokens, by both thresholds; rows are doubled until they are enough."""
    V, seed = model.vocab_size, drawn_seed(generator)
    shared = torch.randint(V, (1, length + gap), generator=generator)
    rows, gradients = min(LARGEST_RANK, expected + 64), torch.empty(0, 0)
    while True:
        more = rows - len(gradients)
        futures = torch.randint(V, (more, SUFFIX), generator=generator)
        tokens = torch.cat([shared.expand(more, -1), futures], dim=1)
        new = _gradients(model, tokens, length, seed, generator)
        gradients = torch.cat([gradients, new]) if len(gradients) else new
        low, high = _ranks(gradients, generator)
        if high < rows or high == gradients.shape[1] or rows >= LARGEST_RANK:
            return low, high
        rows = min(2 * rows, LARGEST_RANK)


def _gradients(
    model: RecallModel, tokens: Int[Tensor, "rows L"], length: int, seed: int, generator: torch.Generator
) -> Float[Tensor, "rows inputs"]:
    """Gradient of a random combination of each row's last logits with respect to what it embeds before the cut."""
    found: list[Tensor] = []
    for some in tokens.split(max(1, TOKENS_AT_ONCE // tokens.shape[1])):
        with torch.enable_grad(), _Nudged(some, seed, generator) as nudged:
            asked = model(some)[:, -SUFFIX:]
            if not nudged.handles:
                raise _NotMeasurableError("no torch.nn.Embedding reads the tokens, and earlier inputs have no gradient")
            if asked.dtype != torch.float64:
                raise _NotMeasurableError(f"its logits are {asked.dtype}, and ranks are counted in float64")
            weights = torch.randn(asked.shape, dtype=asked.dtype, generator=generator)
            parts = torch.autograd.grad((asked * weights).sum(), nudged.handles, materialize_grads=True)
        found.append(torch.cat([part[:, :length].flatten(1) for part in parts], dim=1))
    return torch.cat(found)


class _Nudged(TorchFunctionMode):
    """Moves what is looked up for the tokens, by `nn.Embedding` or its function, and keeps a handle on it.

    It is moved by random numbers, the same in all rows up to where they part: a small vocabulary would otherwise limit
    what can be stored and asked.
    """

    def __init__(self, tokens: Int[Tensor, "rows L"], seed: int, own: torch.Generator) -> None:
        super().__init__()
        self.tokens, self.seed, self.own = tokens, seed, own
        self.handles: list[Tensor] = []

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = func(*args, **(kwargs or {}))
        if func is torch.nn.functional.embedding:
            read = args[0] if args else (kwargs or {})["input"]
            if read.shape == self.tokens.shape and bool((read == self.tokens).all()):
                shared = torch.Generator().manual_seed(self.seed + len(self.handles))
                handle = torch.randn(output.shape[1:], dtype=output.dtype, generator=shared).repeat(len(output), 1, 1)
                handle[:, -SUFFIX:].normal_(generator=self.own)
                handle *= output[0, :-SUFFIX].detach().std()
                self.handles.append(handle.requires_grad_())
                return output + handle
        return output


def _ranks(gradients: Float[Tensor, "rows inputs"], generator: torch.Generator) -> tuple[int, int]:
    """Singular values above both shares of the largest; more columns than needed are mixed into fewer first."""
    rows, columns = gradients.shape
    if columns > 2 * rows:
        gradients = gradients @ torch.randn(columns, rows + 32, dtype=gradients.dtype, generator=generator)
    values = torch.linalg.svdvals(gradients)
    low, high = (int((values > share * values[0]).sum()) for share in CLEAR)
    return low, high

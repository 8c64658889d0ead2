"""The state after a token, the facts it should hold by then, and where queries and their values stand."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from recallscope.architectures.capabilities import HasState
from recallscope.architectures.model import RecallModel
from recallscope.tasks.batch import Batch


@torch.no_grad()
def states_at(model: RecallModel, tokens: Int[Tensor, "batch L"], t: int) -> tuple[Float[Tensor, "batch M P N"], ...]:
    """h_t of every layer, after the tokens 0 .. t, as the model itself has it.

    Paper: Eq. 4 (`eq:simple-ssm`).   Holds for: any model that shows its state.
    """
    L = tokens.shape[1]
    if not 0 <= t < L:
        raise ValueError(f"t={t} is not a position of a sequence of {L} tokens. Use 0 <= t <= {L - 1}.")
    return model.require(HasState).state_after(tokens[:, : t + 1])


def facts_at(batch: Batch, t: int) -> tuple[Int[Tensor, "batch n"], Int[Tensor, "batch n"]]:
    """Keys and values of the facts complete after token t; where a key was written twice, its latest value.

    Paper: Sec. 2 (`par:mqar-definition`), repeated keys App. I.2 (`app-subsec:repeated-keys-queries`).
    """
    _, N_k, N_f = batch.all_values.shape
    done, more = divmod(min((t + 1) // 2, N_k * N_f), N_f)
    latest = batch.all_values[:, done, :more] if more else batch.keys[:, :0]
    if done == 0:
        return batch.keys[:, :more], latest
    return batch.keys, torch.cat((latest, batch.all_values[:, done - 1, more:]), dim=1)


def context_end(batch: Batch) -> int:
    """Position of the last token of the facts: from here on the table is asked."""
    _, N_k, N_f = batch.all_values.shape
    return 2 * N_f * N_k - 1


def starts_with_facts(batch: Batch) -> bool:
    """Whether the sequences begin with their facts, key and value by turns, as the positions here take for granted."""
    context = batch.tokens[:, : context_end(batch) + 1]
    keys, values = context[:, ::2], context[:, 1::2]
    N_k = batch.all_values.shape[1]
    return (
        batch.keys.ndim == 2
        and torch.equal(keys, batch.keys.repeat(1, N_k))
        and torch.equal(values, batch.all_values.flatten(1))
    )


def asked_facts(batch: Batch) -> tuple[Int[Tensor, "batch Q"], Tensor]:
    """Which fact each query asks for, counted in the order of the context; and whether it asks for one at all."""
    keys = batch.keys if batch.keys.ndim == 3 else batch.keys[..., None]
    lags = range(keys.shape[2] - 1, -1, -1)  # a query stands at the last token of its key
    asked = torch.stack([batch.tokens.gather(1, batch.query_positions - lag) for lag in lags], dim=-1)
    match = (keys[:, :, None] == asked[:, None]).all(dim=-1)
    return match.int().argmax(dim=1), match.any(dim=1)


def earlier_tokens(tokens: Int[Tensor, "*batch L"], lag: int) -> Int[Tensor, "*batch L"]:
    """The token `lag` places before each; -1, which is none, where there is not."""
    return pad(tokens, (lag, 0), value=-1)[..., : tokens.shape[-1]]


def at_queries(maps: Float[Tensor, "batch tau L"], batch: Batch) -> Float[Tensor, "batch tau Q"]:
    """The columns of maps (source, query) at the queries of the batch."""
    return maps.gather(2, batch.query_positions[:, None].expand(-1, maps.shape[1], -1))


def share(flags: Bool[Tensor, "..."]) -> float:
    """How many are true, out of all."""
    return float(flags.double().mean())


def value_positions(batch: Batch) -> Int[Tensor, "batch Q"]:
    """Where the value that a query asks for was written (last)."""
    _, N_k, N_f = batch.all_values.shape
    fact, _ = asked_facts(batch)
    return 2 * N_f * (N_k - 1) + 2 * fact + 1

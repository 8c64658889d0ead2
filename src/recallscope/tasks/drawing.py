"""Draw fresh batches of associative recall: exact, from one generator, without a loop over sequences.

Distinct tokens are drawn in one of two ways. Both give every ordered tuple the same chance:

- few out of many: draw with repetition, then redraw whatever repeats until nothing does. The rule looks at
  equality and position only, so renaming the tokens changes nothing; and any tuple of distinct tokens can be
  renamed into any other. Hence all are equally likely.
- most of them: sort random numbers, one per token, and read off the order.
"""

import torch
from jaxtyping import Int
from torch import Generator, Tensor

from recallscope.specs import TaskSpec
from recallscope.tasks.associative_recall import AssociativeRecall
from recallscope.tasks.batch import Batch

RANDOM_BITS = 62  # of the numbers sorted for a permutation; a tie is redrawn, so this is speed, not exactness
TABLE_CELLS = 2**24  # of one table of owners: many sequences of a large vocabulary are drawn in parts


def sample_batch(task: TaskSpec, batch_size: int, generator: Generator | int) -> Batch:
    """Independent sequences of any task, on the generator's device; a whole number is taken for a seed.

    Equal task, size and state of the generator, equal batch; no other random stream is read or moved.
    """
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size}: a batch holds at least one sequence. Use batch_size >= 1.")
    return task.draw(batch_size, as_generator(generator))


def as_generator(seed: Generator | int) -> Generator:
    """The generator itself, or a new one with this seed, on the CPU."""
    return seed if isinstance(seed, Generator) else Generator().manual_seed(seed)


def draw_recall(task: AssociativeRecall, batch_size: int, generator: Generator) -> Batch:
    """A batch of AR, MQAR or repeated keys. Its law is zoology's; its stream is not (`zoology_batch` has that).

    Paper: Sec. 2 (`par:mqar-definition`), Tab. 1 (`tab:mqar_notation`); repeated keys App. I.2
    (`app-subsec:repeated-keys-queries`).
    """
    V, N_f, N_k, L = task.vocab_size, task.num_facts, task.key_repeats, task.length
    keys, all_values = _facts(task, batch_size, generator)
    query_positions, facts = _questions(task, batch_size, generator)

    tokens = torch.empty(batch_size, L, dtype=torch.int64, device=generator.device)
    context, rest = tokens.split([task.context_length, L - task.context_length], dim=1)
    context = context.view(batch_size, N_k, N_f, 2)
    context[..., 0] = keys[:, None]
    context[..., 1] = all_values
    match task.filler:
        case "zero":
            rest.zero_()
        case "values":
            rest.random_(V // 2, V, generator=generator)
        case "random":
            rest.random_(0, V, generator=generator)
    tokens.scatter_(1, query_positions, keys.gather(1, facts))  # over the filler
    return Batch(tokens, query_positions, all_values[:, -1].gather(1, facts), keys, all_values)


def _facts(
    task: AssociativeRecall, batch_size: int, generator: Generator
) -> tuple[Int[Tensor, "batch N_f"], Int[Tensor, "batch N_k N_f"]]:
    """Keys from 1..V/2-1, and for every block of the context values from V/2..V-1; distinct within a row."""
    N_f, N_k, half = task.num_facts, task.key_repeats, task.vocab_size // 2
    sizes = [batch_size, batch_size * N_k]
    if _few(N_f, half):  # keys and values in one go: both are numbers below V/2, but no key is 0
        keys, values = _redrawn(sum(sizes), N_f, half, generator, nonzero=batch_size).split(sizes)
    else:
        keys = _permutations(sizes[0], half - 1, generator)[:, :N_f] + 1
        values = _permutations(sizes[1], half, generator)[:, :N_f]
    return keys, (values + half).view(batch_size, N_k, N_f)


def _questions(
    task: AssociativeRecall, batch_size: int, generator: Generator
) -> tuple[Int[Tensor, "batch Q"], Int[Tensor, "batch Q"]]:
    """Where queries stand, ascending, and the fact each one asks for.

    One question is MQAR at L = 4 N_f cut after its first query: slot 0, and whichever fact stands there.
    """
    N_f, Q, first, device = task.num_facts, task.num_queries, task.context_length, generator.device
    num_slots = task.drawn_slots
    if task.power_a == 1 and num_slots == N_f:  # no slot stays free: all that is random is which fact is where
        if Q == 1:
            facts = torch.randint(N_f, (batch_size, 1), generator=generator, device=device)
        else:
            facts = _permutations(batch_size, N_f, generator)
        positions = torch.arange(first, first + 2 * Q, 2, device=device)
        return positions.expand(batch_size, Q).contiguous(), facts

    if task.power_a != 1:
        slots = _weighted_order(batch_size, num_slots, task.power_a, generator)[:, :N_f]
    elif _few(N_f, num_slots):
        slots = _redrawn(batch_size, N_f, num_slots, generator)
    else:
        slots = _permutations(batch_size, num_slots, generator)[:, :N_f]
    slots, facts = slots.sort(dim=1)
    return first + 2 * slots[:, :Q], facts[:, :Q]


def _few(count: int, size: int) -> bool:
    """Whether redrawing is the faster way: above half, a number redrawn is more likely to repeat than not."""
    return 2 * count <= size


def _redrawn(rows: int, count: int, size: int, generator: Generator, nonzero: int = 0) -> Int[Tensor, "rows count"]:
    """In each row distinct numbers from 0..size-1, or from 1..size-1 in the first `nonzero` rows."""
    most = max(1, TABLE_CELLS // size)
    if rows > most:
        return torch.cat(
            [
                _redrawn(min(most, rows - done), count, size, generator, nonzero=min(most, max(0, nonzero - done)))
                for done in range(0, rows, most)
            ]
        )
    device = generator.device
    small = torch.int16 if count < 2**15 else torch.int64  # a small table stays in the cache
    numbers = torch.randint(size, (rows, count), generator=generator, device=device)
    columns = torch.arange(count, dtype=small, device=device).expand(rows, count)
    owner = torch.empty(rows, size, dtype=small, device=device)  # only what was written is ever read
    nobodys = owner[:nonzero, 0]  # whoever draws 0 in these rows draws again
    while True:
        owner.scatter_(1, numbers, columns)  # of equal numbers in a row, the last one owns the cell
        if device.type != "cpu":  # unless writes race for it: then let the first one have it
            owner.scatter_reduce_(1, numbers, columns, "amin")
        nobodys.fill_(-1)
        repeats = owner.gather(1, numbers) != columns
        how_many = int(repeats.count_nonzero())
        if how_many == 0:
            return numbers
        numbers.masked_scatter_(repeats, torch.randint(size, (how_many,), generator=generator, device=device))


def _permutations(rows: int, size: int, generator: Generator, bits: int = RANDOM_BITS) -> Int[Tensor, "rows size"]:
    """In each row a permutation of 0..size-1, all equally likely; a row with a tie is drawn anew."""
    device = generator.device
    numbers, order = torch.randint(2**bits, (rows, size), generator=generator, device=device).sort(dim=1)
    ties = numbers[:, 1:] == numbers[:, :-1]
    if ties.any():
        tied = ties.any(dim=1)
        order[tied] = _permutations(int(tied.count_nonzero()), size, generator, bits)
    return order


def _weighted_order(rows: int, num_slots: int, power_a: float, generator: Generator) -> Int[Tensor, "rows num_slots"]:
    """Slots in the order they are picked, one at a time, with weight (g+1)^(power_a-1) among those left.

    An exponential race: slot g arrives after a time Exp(weight), and arrivals in order are such picks. Times
    are compared by their logarithms, which no weight overflows.
    """
    device = generator.device
    uniform = torch.rand(rows, num_slots, dtype=torch.float64, generator=generator, device=device)
    slots = torch.arange(1, num_slots + 1, dtype=torch.float64, device=device)
    log_arrival = uniform.log().neg().log() - (power_a - 1) * slots.log()
    return log_arrival.argsort(dim=1)

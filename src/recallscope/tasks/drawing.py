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
from recallscope.tasks.correlated_keys import TemplateMQAR
from recallscope.tasks.zoology_tasks import CompositionalMQAR, ForgettingMQAR

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
    _fill(rest, task.filler, V, generator)
    tokens.scatter_(1, query_positions, keys.gather(1, facts))  # over the filler
    return Batch(tokens, query_positions, all_values[:, -1].gather(1, facts), keys, all_values)


def draw_templates(task: TemplateMQAR, batch_size: int, generator: Generator) -> Batch:
    """A batch of recall with correlated keys (`tasks/correlated_keys.py`)."""
    N_f, m, half, device = task.num_facts, task.key_tokens, task.vocab_size // 2, generator.device
    tokens = 1 + _distinct(batch_size, task.distinct_tokens, half - 1, generator)
    if task.rows:
        cells = _distinct(batch_size, N_f, task.rows * task.columns, generator)
        places = torch.stack((cells // task.columns, task.rows + cells % task.columns), dim=-1)
        keys = tokens.gather(1, places.flatten(1)).view(batch_size, N_f, m)
    else:
        template, fresh = tokens[:, None, :m], tokens[:, m:].view(batch_size, N_f, m)
        own = torch.randint(m, (batch_size, N_f, 1), generator=generator, device=device)
        shared = torch.rand(batch_size, N_f, m, generator=generator, device=device) < task.rho
        keys = torch.where(shared.scatter(2, own, False), template, fresh)
    values = half + _distinct(batch_size, N_f, half, generator)
    facts = _asked(batch_size, N_f, task.num_queries, generator)
    starts = task.context_length + m * torch.arange(task.num_queries, device=device).expand_as(facts)
    rest = tokens.new_empty(batch_size, task.num_queries * m)  # all of it is queries
    return laid_out(section(keys, values), keys, values[:, None], facts, starts, rest)


def draw_grid(task: CompositionalMQAR, batch_size: int, generator: Generator) -> Batch:
    """A batch of zoology's compositional MQAR. Its law is zoology's; its stream is not (`zoology_batch` has that)."""
    N_f, side, third = task.num_facts, task.side, task.vocab_size // 3
    first = 1 + _distinct(batch_size, side, third - 1, generator)
    second = third + _distinct(batch_size, side, third, generator)
    keys = grid_keys(first, second, _permutations(batch_size, N_f, generator))
    values = 2 * third + _distinct(batch_size, N_f, task.vocab_size - 2 * third, generator)
    starts, facts = _questions(task, batch_size, generator)
    rest = keys.new_empty(batch_size, task.length - task.context_length)
    _fill(rest, task.filler, task.vocab_size, generator)
    return laid_out(section(keys, values), keys, values[:, None], facts, starts, rest)


def draw_updates(task: ForgettingMQAR, batch_size: int, generator: Generator) -> Batch:
    """A batch of zoology's forgetting MQAR. Its law is zoology's; its stream is not (`zoology_batch` has that)."""
    half, updates = task.vocab_size // 2, task.num_updates
    keys, all_values = _facts(task, batch_size, generator)
    old = all_values[:, 0]
    new = torch.randint(half, 2 * half - 1, (batch_size, updates), generator=generator, device=generator.device)
    new += new >= old[:, :updates]  # any value but the j-th fact's
    which = _distinct(batch_size, updates, task.num_facts, generator)
    starts, facts = _questions(task, batch_size, generator)
    rest = keys.new_empty(batch_size, task.length - task.context_length)
    _fill(rest, task.filler, task.vocab_size, generator)
    return laid_out(*updated(keys, old, which, new), facts, starts, rest)


def section(keys: Int[Tensor, "batch n *m"], values: Int[Tensor, "batch n"]) -> Int[Tensor, "batch T"]:
    """The tokens of some facts: key, value, key, value ..."""
    return torch.cat((keys if keys.ndim == 3 else keys[..., None], values[..., None]), dim=-1).flatten(1)


def grid_keys(
    first: Int[Tensor, "batch side"], second: Int[Tensor, "batch side"], order: Int[Tensor, "batch N_f"]
) -> Int[Tensor, "batch N_f 2"]:
    """The cells of a grid in this order, counted row by row."""
    side = first.shape[1]
    return torch.stack((first.gather(1, order // side), second.gather(1, order % side)), dim=-1)


def updated(
    keys: Int[Tensor, "batch N_f"],
    old: Int[Tensor, "batch N_f"],
    which: Int[Tensor, "batch updates"],
    new: Int[Tensor, "batch updates"],
) -> tuple[Int[Tensor, "batch T"], Int[Tensor, "batch N_f"], Int[Tensor, "batch 2 N_f"]]:
    """The facts and then the updates, the keys, and their values before and after."""
    context = torch.cat((section(keys, old), section(keys.gather(1, which), new)), dim=1)
    return context, keys, torch.stack((old, old.scatter(1, which, new)), dim=1)


def laid_out(
    context: Int[Tensor, "batch T"],
    keys: Int[Tensor, "batch N_f *m"],
    all_values: Int[Tensor, "batch N_k N_f"],
    facts: Int[Tensor, "batch Q"],
    starts: Int[Tensor, "batch Q"],
    rest: Int[Tensor, "batch rest"],
) -> Batch:
    """A context, then the keys of some facts from the `starts` on, over what fills the rest."""
    several = keys if keys.ndim == 3 else keys[..., None]
    m = several.shape[2]
    tokens = torch.cat((context, rest), dim=1)
    places = starts[..., None] + torch.arange(m, device=keys.device)
    asked = several.gather(1, facts[..., None].expand(-1, -1, m))
    tokens.scatter_(1, places.flatten(1), asked.flatten(1))
    return Batch(tokens, starts + m - 1, all_values[:, -1].gather(1, facts), keys, all_values)


def _fill(rest: Int[Tensor, "batch rest"], filler: str, V: int, generator: Generator) -> None:
    match filler:
        case "zero":
            rest.zero_()
        case "values":
            rest.random_(V // 2, V, generator=generator)
        case "random":
            rest.random_(0, V, generator=generator)


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
    task: AssociativeRecall | CompositionalMQAR, batch_size: int, generator: Generator
) -> tuple[Int[Tensor, "batch Q"], Int[Tensor, "batch Q"]]:
    """Where queries begin, ascending, and the fact each one asks for.

    One question is MQAR at L = 4 N_f cut after its first query: slot 0, and whichever fact stands there.
    """
    N_f, Q, first, device = task.num_facts, task.num_queries, task.context_length, generator.device
    num_slots, slot = task.drawn_slots, task.key_tokens + 1
    if task.power_a == 1 and num_slots == N_f:  # no slot stays free: all that is random is which fact is where
        facts = _asked(batch_size, N_f, Q, generator)
        positions = torch.arange(first, first + slot * Q, slot, device=device)
        return positions.expand(batch_size, Q).contiguous(), facts

    if task.power_a != 1:
        slots = _weighted_order(batch_size, num_slots, task.power_a, generator)[:, :N_f]
    else:
        slots = _distinct(batch_size, N_f, num_slots, generator)
    slots, facts = slots.sort(dim=1)
    return first + slot * slots[:, :Q], facts[:, :Q]


def _asked(rows: int, num_facts: int, num_queries: int, generator: Generator) -> Int[Tensor, "rows Q"]:
    """Which facts are asked, in this order: one of them, or all."""
    if num_queries == 1:
        return torch.randint(num_facts, (rows, 1), generator=generator, device=generator.device)
    return _permutations(rows, num_facts, generator)


def _distinct(rows: int, count: int, size: int, generator: Generator) -> Int[Tensor, "rows count"]:
    """In each row distinct numbers from 0..size-1, in any order."""
    few = _few(count, size)
    return _redrawn(rows, count, size, generator) if few else _permutations(rows, size, generator)[:, :count]


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

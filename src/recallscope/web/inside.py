"""Inside: the state of a model as the hash table it is. A page sends all steps since the empty state, so nothing is
kept between two questions but the models themselves; this module is loaded when it is first asked, and needs torch."""

from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Annotated, Any, Literal

import torch
from pydantic import Field

from recallscope.architectures.capabilities import HasAttention, HasOperators
from recallscope.architectures.model import RecallModel
from recallscope.circuits.circuit import CIRCUITS, CircuitSizes
from recallscope.interp.attention import attention_strength, joint_attention
from recallscope.interp.hash_table import hashed_table
from recallscope.interp.memory import HashMemory
from recallscope.interp.operators import effective_operators, mean_diagonals
from recallscope.specs import TaskSpec, parse_task
from recallscope.tasks.drawing import sample_batch
from recallscope.train.weights import read_weights
from recallscope.web.store_set import Query, StoreSet

MOST_MODELS = 4  # that are kept in memory
MOST_STEPS = 400
MOST_TOKENS = 2048  # of a sequence that is shown, with what each token of it attends to
MOST_SIZE = 512  # of a designed circuit, D and N; its vocabulary is up to twice that
SHOWN = 24  # keys, and values, of the decoded table
TOP = 8  # answers with their probabilities
EACH = 16  # keys, and values, of the operators that are shown

Token = Annotated[int, Field(ge=0, le=2**20)]
Step = tuple[Literal["store", "overwrite"], Token, Token] | tuple[Literal["forget"], Token]


class MemoryQuery(Query):
    """A model, what was done to its state since it was empty, and a key that is asked."""

    model: Annotated[str, Field(max_length=120)]
    steps: Annotated[tuple[Step, ...], Field(max_length=MOST_STEPS)] = ()
    ask: Token | None = None


class PictureQuery(Query):
    """A model, and which sequence it reads."""

    model: Annotated[str, Field(max_length=120)]
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


@dataclass(eq=False)
class Subject:
    """A model in memory; one question at a time changes its state."""

    model: RecallModel
    task: TaskSpec
    lock: Lock = field(default_factory=Lock)

    @cached_property
    def memory(self) -> HashMemory:
        """Its state as a hash table; an error for models that cannot write facts into it."""
        return HashMemory(self.model)


_SUBJECTS: OrderedDict[tuple[StoreSet, str], Subject] = OrderedDict()
_LOCK = Lock()


def subject(store_set: StoreSet, name: str) -> Subject:
    """The model of a name: `weights:0`, `run:STORE:RUN`, or `circuit:compressive:V:D:N:SEED`."""
    key = store_set, name  # another explorer of this process has other models of that name, and may trust no code
    with _LOCK:
        if key not in _SUBJECTS:
            torch.set_num_threads(1)
            _SUBJECTS[key] = Subject(*_load(store_set, name))
            while len(_SUBJECTS) > MOST_MODELS:
                _SUBJECTS.popitem(last=False)
        _SUBJECTS.move_to_end(key)
        return _SUBJECTS[key]


def _load(store_set: StoreSet, name: str) -> tuple[RecallModel, TaskSpec]:
    kind, *rest = name.split(":")
    numbers = [int(word) for word in rest if word.isascii() and word.isdecimal() and len(word) < 10]
    if kind == "weights" and len(numbers) == len(rest) == 1 and numbers[0] < len(store_set.weights):
        return read_weights(store_set.weights[numbers[0]], trust_code=store_set.trust_code)
    if kind == "run" and len(rest) == 2 and rest[0].isascii() and rest[0].isdecimal() and len(rest[0]) < 10:
        weights = store_set.weights_of(store_set.store(int(rest[0])), rest[1])
        return read_weights(weights, trust_code=store_set.trust_code)
    if kind == "circuit" and len(rest) == 5 and len(numbers) == 4:
        return _designed(rest[0], *numbers)
    raise ValueError(f"model={name!r} is not a model of this page.")


def _designed(circuit: str, V: int, D: int, N: int, seed: int) -> tuple[RecallModel, TaskSpec]:
    if not (V <= 2 * MOST_SIZE and D <= MOST_SIZE and N <= MOST_SIZE and D > 0 and N > 0):
        raise ValueError(f"a circuit of this page has V up to {2 * MOST_SIZE}, D and N from 1 to {MOST_SIZE}.")
    task = parse_task({"kind": "mqar", "vocab_size": V, "num_facts": max(1, min(16, V // 8))})
    found = CIRCUITS.find(circuit)
    sizes = CircuitSizes(V, V, V) if found.fixed_size else CircuitSizes(V, D, N)
    return found.build(sizes, torch.Generator().manual_seed(seed)), task


def memory(store_set: StoreSet, fields: dict[str, Any]) -> dict[str, Any]:
    """The state after all steps: its tables, what can be read off it, which facts it gets wrong, and one answer."""
    question = MemoryQuery.of(fields)
    one = subject(store_set, question.model)
    with one.lock:
        ledger = _replay(one.memory, question.steps)
        return {
            "vocab_size": one.memory.vocab_size,
            "spec": one.model.spec.model_dump(mode="json"),
            "task": one.task.model_dump(mode="json"),
            "state_entries": one.memory.state.numel(),
            **_tables(one, ledger, question.ask),
            "facts": _checked(one.memory, ledger),
            "read": _read(one),
            "answer": None if question.ask is None else _answer(one.memory, question.ask),
        }


def _replay(memory: HashMemory, steps: tuple[Step, ...]) -> dict[int, int]:
    """Do the steps from the empty state; what was stored last under each key."""
    memory.clear()
    ledger: dict[int, int] = {}
    for action, key, *value in steps:
        getattr(memory, action)(key, *value)
        ledger.pop(key, None)
        if value:
            ledger[key] = value[0]
    return ledger


def _checked(memory: HashMemory, ledger: dict[int, int]) -> list[dict[str, Any]]:
    """Every stored fact with what the state answers for its key."""
    if not ledger:
        return []
    scores, values = memory.scores(torch.tensor(list(ledger))).topk(2)
    return [
        {"key": key, "value": value, "said": said[0], "score": round(score[0], 4),
         "margin": round(score[0] - score[1], 4), "right": said[0] == value}
        for (key, value), score, said in zip(ledger.items(), scores.tolist(), values.tolist(), strict=True)
    ]  # fmt: skip


def _tables(one: Subject, ledger: dict[int, int], ask: int | None) -> dict[str, Any]:
    """H' as it is, and H'' for the facts' tokens and some others."""
    half = one.memory.vocab_size // 2
    asked = [] if ask is None else [ask]
    keys, values = _some([*asked, *reversed(ledger)], 1, half), _some(reversed(ledger.values()), half, 2 * half)
    decoded = one.memory.scores(torch.tensor(keys))[:, torch.tensor(values)].T
    state = one.memory.state
    if one.model.capability(HasOperators) is None:
        hashed, title = state.flatten(0, 1), "h"
    else:
        hashed, title = hashed_table(one.model, (state[None],))[0], "H' = P_out h"
    return {"hashed": _numbers(hashed), "hashed_title": title, "decoded": _numbers(decoded), "keys": keys,
            "values": values}  # fmt: skip


def _some(first: Any, low: int, high: int) -> list[int]:
    """Tokens of a range, ascending: the first ones given, and others until there are enough to see."""
    wanted = [token for token in dict.fromkeys(first) if low <= token < high][: 2 * SHOWN]
    return sorted(list(dict.fromkeys([*wanted, *range(low, high)]))[: max(SHOWN, len(wanted))])


def _read(one: Subject) -> dict[str, Any] | None:
    """The facts that the state tells by itself, and how full it is; None if the model has no operators to tell them."""
    if one.model.capability(HasOperators) is None:
        return None
    load = one.memory.load
    return {"num_facts": load.num_facts, "capacity": load.capacity, "next_error": load.next_error}


def _answer(memory: HashMemory, key: int) -> dict[str, Any]:
    """What is recalled for a key, and the model's own probabilities."""
    said = memory.recall(key)
    best, tokens = memory.probabilities(key).topk(TOP)
    top = [[token, round(p, 5)] for token, p in zip(tokens.tolist(), best.tolist(), strict=True)]
    facts = {"value": said.value, "margin": round(said.margin, 4), "score": round(said.score, 4), "found": said.found}
    return {"key": key, **facts, "top": top}


def pictures(store_set: StoreSet, fields: dict[str, Any]) -> dict[str, Any]:
    """A sequence, to which tokens each listens, and the operators on some tokens; None for what a model lacks."""
    question = PictureQuery.of(fields)
    one = subject(store_set, question.model)
    if one.task.sequence_length > MOST_TOKENS:
        raise ValueError(
            f"sequences of this model's task have {one.task.sequence_length:,} tokens, and this page shows up to "
            f"{MOST_TOKENS:,}. Use recallscope inspect."
        )
    batch = sample_batch(one.task, 1, question.seed)
    tokens, positions = batch.tokens, batch.query_positions[0]
    has_operators = one.model.capability(HasOperators) is not None
    found: dict[str, Any] = {
        "tokens": tokens[0].tolist(), "queries": positions.tolist(), "answers": batch.answers[0].tolist(),
        "attention": None, "operators": None,
    }  # fmt: skip
    with torch.no_grad():
        found["said"] = one.model.answer(tokens, batch.query_positions)[0].argmax(dim=-1).tolist()
    if one.model.capability(HasAttention) is not None:
        attend = joint_attention if has_operators else attention_strength
        found["attention"] = _numbers(attend(one.model, tokens)[0].T)
    if has_operators:
        half = one.task.vocab_size // 2
        some = torch.tensor([*range(1, 1 + min(EACH, half - 1)), *range(half, half + min(EACH, half))])
        ops = effective_operators(one.model)
        value, match = mean_diagonals(ops)
        few = ops.restricted(some)
        found["operators"] = {"tokens": some.tolist(), "value": _numbers(few.value_operator / value),
                              "match": _numbers(few.match_operator / match)}  # fmt: skip
    return found


def _numbers(table: torch.Tensor) -> list[list[float]]:
    """Three digits, which is more than a picture shows."""
    return [[round(x, 3) for x in row] for row in table.detach().tolist()]

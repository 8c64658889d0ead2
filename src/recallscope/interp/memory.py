"""HashMemory: the state of a model of one layer, used as what it is, a hash table."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from recallscope.architectures.capabilities import (
    HasOperators,
    HasState,
    RevisesFacts,
    WritesFacts,
    key_tokens,
    value_tokens,
)
from recallscope.architectures.model import RecallModel
from recallscope.interp.decoders import PREVIOUS_TOKENS
from recallscope.interp.operators import effective_operators
from recallscope.interp.selectivity import measure_codes
from recallscope.notebook import html_rows, html_table
from recallscope.theory.problem import Array

FOUND = 0.5  # a stored fact reads 1, an absent one 0
FULL_AT = 0.01  # predicted error at which the table counts as full
MOST_SHOWN = 20  # facts in a notebook
QUESTIONS = 4096  # about as many are averaged over for the unit of a fact


class Recall(NamedTuple):
    """An answer of the memory, in units of one stored fact."""

    value: int
    margin: float
    """lead of this value over the next"""
    score: float
    """1 for a fact stored once, about 0 for none"""

    @property
    def found(self) -> bool:
        """Whether the key seems to be in the table at all."""
        return self.score > FOUND


class Fact(NamedTuple):
    """A fact read off the state."""

    key: int
    value: int
    score: float


@dataclass(frozen=True)
class Load:
    """How full the table is."""

    num_facts: int
    """facts decoded from the state"""
    capacity: int
    """facts it holds before the predicted error passes 1 %"""
    next_error: float
    """predicted chance that a fact is recalled wrongly once one more is stored"""


class HashMemory:
    """A key-value store that is nothing but the state of a model and its weights.

    Keys are tokens 1 .. V/2 - 1, values V/2 .. V - 1. Storing adds v' k'ᵀ, recalling asks the model, and nothing is
    looked up anywhere else: facts that share the state disturb each other, as in the model. Nothing is read between
    storing and recalling, so nothing fades. A model with a rule of its own (a delta rule, least squares) stores by it.

    Paper: App. D.3 (`app-subsec:hidden-as-hash`): hash, store, match, retrieve.
    Holds for: one layer, designed or trained, that shows its state and says what a fact leaves in it. `facts` and
        `load` need operators: where answers are not linear in the state, as behind a norm, scores are only roughly in
        units of one fact, and a key that was never stored may be answered as surely as one that was.
    """

    def __init__(self, model: RecallModel) -> None:
        self._able, self._state_of = model.require(WritesFacts), model.require(HasState)
        self._rule = model.capability(RevisesFacts)
        layers = self._able.fact_codes()
        if len(layers) != 1:
            raise ValueError(
                f"HashMemory is the state of one layer, and this model has {len(layers)}. Use a model with "
                f"num_layers=1, or a circuit such as recallscope.circuits.linear.designed_circuit."
            )
        self._model, (self._codes,) = model, layers
        self.vocab_size = model.vocab_size
        ids = torch.arange(self.vocab_size, device=self._codes.values.device)
        self._keys, self._values = ids[key_tokens(self.vocab_size)], ids[value_tokens(self.vocab_size)]
        alone = model.capability(HasOperators) is not None  # else queries are averaged over what may stand before
        self._before = ids[None, :0] if alone else ids[:: max(1, len(ids) // PREVIOUS_TOKENS), None]
        self._unit = 1.0
        self._unit = self._mean_rise()
        if not self._unit > 0:
            raise ValueError(
                f"a stored fact moves the logit of its value by {self._unit:.3g} on average: this model has not "
                f"learned to recall. Train it, or write it down (recallscope.circuits)."
            )
        self.clear()

    @property
    def state(self) -> Float[Tensor, "heads P N"]:
        """h, all there is."""
        return self._state[0]

    def clear(self) -> None:
        """Forget everything."""
        self.lost = 0
        self._state = torch.zeros_like(self._codes.writes(self._keys[:1], self._values[:1]))

    def store(self, key: int, value: int) -> None:
        """h += v' k'ᵀ, or the model's own rule. A key stored twice has two values, which add up: `overwrite` replaces.

        A delta rule takes away, with rate b, what the key held before.
        """
        self._check(key, value)
        pair = self._pair(key, value)
        if self._rule is None:
            self._state = self._state + self._writes(*pair)
        else:
            self._state = self._rule.write_facts(self._state, *pair)

    def read(self, tokens: Int[Tensor, " L"]) -> None:
        """Let the model read a whole sequence, and take its state over."""
        (state,) = self._state_of.state_after(tokens[None])
        self._state = state.expand_as(self._state)

    def recall(self, key: int) -> Recall:
        """The value with the largest logit, and how sure it is."""
        self._check(key, None)
        logits = self._ask(self._state, self._keys[key - 1 : key])[0]
        (score, next_best), (value, _) = (pair.tolist() for pair in logits.topk(2))
        return Recall(value=int(value), margin=score - next_best, score=score)

    def scores(self, keys: Int[Tensor, " n"]) -> Float[Tensor, "n V"]:
        """What the state adds to the logits of every token when these keys are asked, in units of one stored fact."""
        return self._ask(self._state.expand(len(keys), -1, -1, -1), keys)

    def probabilities(self, key: int) -> Float[Tensor, " V"]:
        """How the model itself answers a key with this state: a softmax over all tokens."""
        self._check(key, None)
        edited, _ = self._answers(self._state, self._keys[key - 1 : key])
        return edited.softmax(dim=-1).mean(dim=0)

    def forget(self, key: int) -> Fact | None:
        """h -= v' k'ᵀ for the value that `recall` gives; returns what was taken out, None if nothing was found.

        A model with a rule of its own undoes it: exactly, if the fact was stored last. `lost` then counts the
        dimensions of the state in which the rule had left nothing to restore; least squares loses none.
        """
        recalled = self.recall(key)
        if not recalled.found:
            return None
        pair = self._pair(key, recalled.value)
        if self._rule is None:
            self._state = self._state - self._writes(*pair)
        else:
            self._state, lost = self._rule.take_back(self._state, *pair)
            self.lost = int(lost.sum())
        return Fact(key, recalled.value, recalled.score)

    def overwrite(self, key: int, value: int) -> Fact | None:
        """Forget, then store; returns the fact that was replaced, if one was found."""
        self._check(key, value)
        replaced = self.forget(key)
        self.store(key, value)
        return replaced

    def facts(self) -> list[Fact]:
        """Everything the state tells, surest first, without being told which keys to ask for.

        The largest entry of the decoded table is taken for a fact, taken out, and so on until none is above half.

        Paper: Alg. 2 (`alg:hidden_state_inversion`).   Holds for: models with operators.
        """
        self._model.require(HasOperators)
        state, found = self._state, dict[tuple[int, int], Fact]()
        while len(found) < len(self._keys):
            table = self._ask(state.expand(len(self._keys), -1, -1, -1), self._keys)[:, self._values]
            k, v = divmod(int(table.argmax()), len(self._values))
            fact = Fact(int(self._keys[k]), int(self._values[v]), float(table[k, v]))
            if fact.score <= FOUND or fact[:2] in found:
                break
            state = state - self._writes(*self._pair(fact.key, fact.value))
            found[fact[:2]] = fact
        return list(found.values())

    @property
    def load(self) -> Load:
        """How full the table is, and what the law says about one fact more.

        Paper: Thm 4.2 (`thm:prob-scaling-law`), with the variances of this model's operators.
        """
        n, p = len(self.facts()), self._expected
        good = p >= 1 - FULL_AT
        capacity = len(p) if good.all() else int(good.argmin())
        return Load(num_facts=n, capacity=capacity, next_error=float(1 - p[min(n, len(p) - 1)]))

    @cached_property
    def _expected(self) -> Array:
        """Recall that the law expects of 1, 2, ... facts; facts are stored one by one, so no neighbours leak."""
        alone = replace(measure_codes(effective_operators(self._model)), key_leak=0.0)
        return alone.recall(vocab_size=self.vocab_size, num_facts=range(1, len(self._keys) + 1), task="ar")

    def __len__(self) -> int:
        """How many facts the state tells."""
        return len(self.facts())

    def _repr_html_(self) -> str:
        """For notebooks: the facts in the state and how full it is, if the model has operators to read them by."""
        title = f"HashMemory, state of {self.state.numel():,} numbers, {self.vocab_size} tokens"
        if self._model.capability(HasOperators) is None:
            return html_table(title, {"keys": f"1 .. {self.vocab_size // 2 - 1}"})
        load, facts = self.load, self.facts()
        about = {"facts": load.num_facts, "capacity": load.capacity, "predicted error of the next": load.next_error}
        return html_table(title, about) + html_rows(Fact._fields, facts[:MOST_SHOWN])

    def _ask(self, states: Float[Tensor, "n heads P N"], keys: Int[Tensor, " n"]) -> Float[Tensor, "n V"]:
        """What each state adds to the logits of its query, in units of one fact."""
        edited, plain = self._answers(states, keys)
        return (edited - plain).unflatten(0, (len(keys), len(self._before))).mean(dim=1) / self._unit

    @torch.no_grad()
    def _answers(
        self, states: Float[Tensor, "n heads P N"], keys: Int[Tensor, " n"]
    ) -> tuple[Float[Tensor, "asked V"], Float[Tensor, "asked V"]]:
        """Logits of every query after all that may stand before it, with its state and with an empty one."""
        count, width = self._before.shape
        tokens = torch.cat((self._before.repeat(len(keys), 1), keys.repeat_interleave(count)[:, None]), dim=1)
        asked, edits = torch.full_like(tokens[:, :1], width), states.repeat_interleave(count, dim=0)
        edited = self._able.answer_edited(tokens, asked, (edits,), after=width - 1)
        return edited[:, 0], self._model.answer(tokens, asked)[:, 0]

    def _mean_rise(self) -> float:
        """How much a stored fact raises the logit of its value, over all pairs or an even choice of them."""
        keys, values = self._keys, self._values
        turns = max(1, min(len(values), QUESTIONS // (len(keys) * len(self._before))))
        shifts = torch.arange(turns, device=keys.device) * len(values) // turns
        value = values[(shifts[:, None] + torch.arange(len(keys), device=keys.device)) % len(values)].flatten()
        key = keys.repeat(turns)
        raised = self._ask(self._writes(key, value), key).gather(1, value[:, None])
        return float(raised.double().mean())

    def _writes(self, keys: Int[Tensor, " n"], values: Int[Tensor, " n"]) -> Float[Tensor, "n heads P N"]:
        """What each fact leaves in an empty state."""
        codes = self._codes.writes(keys, values)
        return codes if self._rule is None else self._rule.write_facts(torch.zeros_like(codes), keys, values)

    def _pair(self, key: int, value: int) -> tuple[Int[Tensor, " 1"], Int[Tensor, " 1"]]:
        return self._keys.new_tensor([key]), self._keys.new_tensor([value])

    def _check(self, key: int, value: int | None) -> None:
        V = self.vocab_size
        if not 1 <= key < V // 2:
            raise ValueError(
                f"key={key} is not a key: of vocab_size={V} tokens, 1 to {V // 2 - 1} are (Sec. 2; 0 is neither key "
                f"nor value). Use 1 <= key <= {V // 2 - 1}."
            )
        if value is not None and not V // 2 <= value < V:
            raise ValueError(
                f"value={value} is not a value: of vocab_size={V} tokens, {V // 2} to {V - 1} are (Sec. 2). "
                f"Use {V // 2} <= value <= {V - 1}."
            )

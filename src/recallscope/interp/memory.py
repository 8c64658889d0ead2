"""HashMemory: the state of a linear Mamba, used as what it is, a hash table."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from recallscope.architectures.layered import LayeredModel
from recallscope.architectures.linear_model import LinearMamba
from recallscope.interp.edits import fact_writes
from recallscope.interp.operators import token_operators
from recallscope.interp.scale import strength
from recallscope.interp.selectivity import measure_codes
from recallscope.interp.states import states_at
from recallscope.interp.vocabulary import key_tokens, value_tokens
from recallscope.theory.sharing import recall_given_variances

FOUND = 0.5  # a stored fact reads 1, an absent one 0
FULL_AT = 0.01  # predicted error at which the table counts as full


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
    """A key-value store that is nothing but the D_in x N state of a model and its weights.

    Keys are tokens 1 .. V/2 - 1, values V/2 .. V - 1. Storing adds v' k'ᵀ, recalling multiplies by q', and nothing
    is looked up anywhere else: facts that share the state disturb each other, as in the model.

    Paper: App. D.3 (`app-subsec:hidden-as-hash`): hash, store, match, retrieve.
    Holds for: one linear layer, designed or trained.
    """

    def __init__(self, model: LayeredModel) -> None:
        if not isinstance(model, LinearMamba) or len(model.layers) != 1 or model.spec.conv_width < 2:
            raise ValueError(
                f"HashMemory is the state of one linear layer with conv_width >= 2 (Alg. 1), and this is "
                f"{type(model).__name__} with {len(model.layers)} layer(s), conv_width={model.spec.conv_width}. Use a "
                f"LinearMamba with num_layers=1, or a circuit such as recallscope.circuits.designed_circuit."
            )
        self._parts = token_operators(model)
        self._unit = strength(self._parts[0])
        if not self._unit > 0:
            raise ValueError(
                f"a stored fact moves the logit of its value by {self._unit:.3g} on average: this model has not "
                f"learned to recall. Train it, or write it down (recallscope.circuits)."
            )
        self._model = model
        self._codes = measure_codes(self._parts[0])
        self.vocab_size = model.vocab_size
        self.clear()

    @property
    def state(self) -> Float[Tensor, "D_in N"]:
        """h, all there is."""
        return self._state[0, 0]

    def clear(self) -> None:
        """Forget everything."""
        part = self._parts[0]
        self._state = part.Pi_v_in.new_zeros(1, 1, part.Pi_v_in.shape[0], part.Pi_k_in.shape[0])

    def store(self, key: int, value: int) -> None:
        """h += v' k'ᵀ. A key stored twice has two values, which add up: `overwrite` replaces."""
        self._state = self._state + self._write(key, value)

    def read(self, tokens: Int[Tensor, " L"]) -> None:
        """Let the model read a whole sequence, and take its state over."""
        (self._state,) = states_at(self._model, tokens[None], len(tokens) - 1)

    def recall(self, key: int) -> Recall:
        """The value with the largest logit, and how sure it is."""
        self._check(key, None)
        part = self._parts[0]
        logits = part.Pi_v_out @ self.state @ part.hashed_queries[:, key] / self._unit
        (score, next_best), (value, _) = (pair.tolist() for pair in logits.topk(2))
        return Recall(value=int(value), margin=score - next_best, score=score)

    def forget(self, key: int) -> Fact | None:
        """h -= v' k'ᵀ for the value that `recall` gives; returns what was taken out, None if nothing was found."""
        said = self.recall(key)
        if not said.found:
            return None
        self._state = self._state - self._write(key, said.value)
        return Fact(key, said.value, said.score)

    def overwrite(self, key: int, value: int) -> Fact | None:
        """Forget, then store; returns the fact that was replaced, if one was found."""
        self._check(key, value)
        replaced = self.forget(key)
        self.store(key, value)
        return replaced

    def facts(self) -> list[Fact]:
        """Everything the state tells, surest first, without being told which keys to ask for.

        The largest entry of the decoded table is taken for a fact, taken out, and so on until none is above half.

        Paper: Alg. 2 (`alg:hidden_state_inversion`).
        """
        rows, columns = value_tokens(self.vocab_size), key_tokens(self.vocab_size)
        table = self._decoded(self._state)
        found: list[Fact] = []
        while len(found) < table.shape[1]:
            value, key = divmod(int(table.argmax()), table.shape[1])
            score = float(table[value, key])
            if score <= FOUND:
                break
            fact = Fact(key + columns.start, value + rows.start, score)
            table = table - self._decoded(self._write(fact.key, fact.value))
            found.append(fact)
        return found

    @property
    def load(self) -> Load:
        """How full the table is, and what the law says about one fact more.

        Paper: Thm 4.2 (`thm:prob-scaling-law`), with the variances of this model's operators.
        """
        most = self.vocab_size // 2 - 1
        counts = torch.arange(1, most + 1).numpy()
        p = recall_given_variances(
            key_variance=self._codes.key_variance,
            value_variance=self._codes.value_variance,
            leak=0.0,  # facts are stored one by one: no (value, key) neighbours
            vocab_size=self.vocab_size,
            num_facts=counts,
            task="ar",
        )
        n = len(self.facts())
        good = p >= 1 - FULL_AT
        capacity = most if good.all() else int(good.argmin())
        return Load(num_facts=n, capacity=capacity, next_error=float(1 - p[min(n, most - 1)]))

    def __len__(self) -> int:
        """How many facts the state tells."""
        return len(self.facts())

    def _decoded(self, state: Float[Tensor, "1 1 D_in N"]) -> Float[Tensor, "values keys"]:
        """H'' in units of one fact, values by keys."""
        part = self._parts[0]
        rows, columns = value_tokens(self.vocab_size), key_tokens(self.vocab_size)
        return part.Pi_v_out[rows] @ state[0, 0] @ part.hashed_queries[:, columns] / self._unit

    def _write(self, key: int, value: int) -> Tensor:
        self._check(key, value)
        return fact_writes(self._parts, torch.tensor([key]), torch.tensor([value]))

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

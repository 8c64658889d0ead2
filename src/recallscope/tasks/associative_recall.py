"""The paper's tasks: associative recall as zoology generates it. `mqar` asks every fact once, `ar` one of them,
and `repeated` writes them several times, with other values each time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from recallscope.specs import Positive, Size, TaskSpec, task

if TYPE_CHECKING:
    import torch

    from recallscope.tasks.batch import Batch


Filler = Literal["random", "zero", "values"]


class AssociativeRecall(TaskSpec):
    """N_f key-value pairs, then queries. `ar`, `mqar` and `repeated` differ in what is asked and how often.

    Paper: Sec. 2 (`par:mqar-definition`), Tab. 1 (`tab:mqar_notation`).
    Departs: zoology's own V > L is asked only of its bit-exact stream: what the task needs is N_f distinct keys out of
        V/2 - 1 (token 0 is never a key).
    """

    FOLLOWING = ("length",)
    key_tokens: ClassVar[int] = 1
    vocab_size: Size = Field(description="V, even: tokens 1..V/2-1 are keys, V/2..V-1 values, 0 is neither")
    num_facts: Size = Field(description="N_f, key-value pairs in the context")
    length: Size = Field(description="L, tokens in a sequence; 4 N_f for mqar and 2 N_f + 1 for ar unless given")
    power_a: Positive = Field(1.0, description="query slot g is drawn with weight (g+1)^(power_a-1); 1 is uniform")
    filler: Filler = Field("random", description="what fills the gaps: any token, 0, or values only")
    key_repeats: Size = Field(1, description="N_k, how often each key is written; the last value is the answer")

    @classmethod
    def shortest_length(cls, num_facts: int, key_repeats: int) -> int:
        """The length if none is given: every fact is queried once, in a slot of two tokens."""
        return 2 * num_facts * (key_repeats + 1)

    @model_validator(mode="before")
    @classmethod
    def _length_follows_from_the_facts(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("length") is None:
            N_f, N_k = data.get("num_facts"), data.get("key_repeats", 1)
            follows = cls.shortest_length(N_f, N_k) if isinstance(N_f, int) and isinstance(N_k, int) else 0
            return {**data, "length": max(follows, 1)}  # of facts that are refused, so that it is not refused as well
        return data

    @model_validator(mode="after")
    def _there_are_enough_keys(self) -> AssociativeRecall:
        V, N_f = self.vocab_size, self.num_facts
        if V % 2:
            raise ValueError(
                f"vocab_size={V} is odd: half of the tokens are keys and half are values (Sec. 2). "
                f"Use vocab_size={V + 1}."
            )
        if N_f > V // 2 - 1:
            raise ValueError(
                f"num_facts={N_f} needs {N_f} distinct keys, but vocab_size={V} leaves {V // 2 - 1} "
                f"(tokens 1..V/2-1; 0 is never a key). Use vocab_size >= {2 * N_f + 2}"
                + (f", or num_facts <= {V // 2 - 1}." if V > 2 else ".")
            )
        self._check_repeats()
        self._check_length()
        return self

    def _check_repeats(self) -> None:
        if self.key_repeats != 1:
            raise ValueError(
                f"key_repeats={self.key_repeats} is for kind='repeated' only (App. I.2), and kind is {self.kind!r}. "
                f"Use kind='repeated', or key_repeats=1."
            )

    def _check_length(self) -> None:
        N_f, L, N_k = self.num_facts, self.length, self.key_repeats
        if L % 2:
            raise ValueError(f"length={L} is odd: facts and query slots come in pairs of tokens. Use length={L + 1}.")
        if self.num_slots < N_f:
            rule = "4 N_f" if N_k == 1 else f"2 N_f (N_k + 1), N_k = {N_k}"
            least = self.shortest_length(N_f, N_k)
            raise ValueError(
                f"length={L} is too short for num_facts={N_f}: every fact is queried once, in a slot of two tokens "
                f"after the context, so length >= {rule} = {least} (Tab. 1). Use length={least}"
                + (f", or num_facts <= {L // (2 * (N_k + 1))}." if L >= 2 * (N_k + 1) else ".")
            )

    @property
    def sequence_length(self) -> int:
        """L."""
        return self.length

    @property
    def context_length(self) -> int:
        """Tokens of the facts section, 2 N_f N_k."""
        return 2 * self.num_facts * self.key_repeats

    @property
    def num_slots(self) -> int:
        """G, places where a query may stand: (L - 2 N_f N_k) / 2."""
        return (self.length - self.context_length) // 2

    @property
    def num_queries(self) -> int:
        """Questions asked in one sequence: every fact once."""
        return self.num_facts

    @property
    def drawn_slots(self) -> int:
        """Slots the queries are drawn from before a sequence is cut."""
        return self.num_slots

    def levels(self) -> tuple[AssociativeRecall, ...]:
        """The same task with 1, 2, 4, ... facts, then itself; lengths stay in proportion."""
        N_f, given = self.num_facts, "length" in self.leaving_out()
        fewer = (2**power for power in range(N_f.bit_length()) if 2**power < N_f)
        return (*(self._with(n, self.length * n // N_f if given else None) for n in fewer), self)

    def _with(self, num_facts: int, length: int | None = None) -> AssociativeRecall:
        """The same task with another number of facts, in a sequence of this length if that is long enough."""
        least = self.shortest_length(num_facts, self.key_repeats)
        fields = self.leaving_out() | {"num_facts": num_facts}
        fields.pop("length", None)
        return type(self).model_validate(fields | ({} if length is None else {"length": max(length // 2 * 2, least)}))

    def zoology_levels(self) -> tuple[AssociativeRecall, ...]:
        """A sixteenth, an eighth, a quarter and a half of the facts, then itself; lengths L/4, L/2, L, L and L.

        zoology's are 4, 8, 16, 32 and 64 facts in 64, 128, 256, 256 and 256 tokens.
        """
        parts = ((16, 4), (8, 2), (4, 1), (2, 1))
        return (*(self._with(max(self.num_facts // n, 1), self.length // L) for n, L in parts), self)

    def zoology_tests(self) -> tuple[AssociativeRecall, ...]:
        """From a sixteenth of the facts to four times as many, where there are enough keys; L/4 tokens or more.

        zoology's are 4 to 256 facts in 64 to 1,024 tokens.
        """
        counts = sorted({max(self.num_facts * 2**power // 16, 1) for power in range(7)})
        return tuple(self._with(n, self.length // 4) for n in counts if n < self.vocab_size // 2)

    def draw(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Independent sequences of the task, on the generator's device."""
        from recallscope.tasks.drawing import draw_recall

        return draw_recall(self, batch_size, generator)


@task("ar")
class ARSpec(AssociativeRecall):
    """Associative recall: N_f facts, then one query. It is MQAR at L = 4 N_f, cut after its first query.

    Paper: Sec. 2 (`par:mqar-definition`).
    """

    @classmethod
    def shortest_length(cls, num_facts: int, key_repeats: int) -> int:
        """2 N_f + 1."""
        return 2 * num_facts + 1

    def _check_length(self) -> None:
        N_f = self.num_facts
        if self.length != 2 * N_f + 1:
            raise ValueError(
                f"length={self.length} does not fit kind='ar': one query after {N_f} facts makes "
                f"2 N_f + 1 = {2 * N_f + 1} tokens (Sec. 2). Leave length out, or use kind='mqar'."
            )

    @property
    def num_slots(self) -> int:
        """The query stands in one place."""
        return 1

    @property
    def num_queries(self) -> int:
        """One."""
        return 1

    @property
    def drawn_slots(self) -> int:
        """All N_f, of which the first is kept."""
        return self.num_facts

    def _with(self, num_facts: int, length: int | None = None) -> AssociativeRecall:
        return super()._with(num_facts)  # its length follows


@task("mqar")
class MQARSpec(AssociativeRecall):
    """Multi-query associative recall: N_f facts, then every one of them is asked, filler in between.

    Paper: Sec. 2 (`par:mqar-definition`), Tab. 1 (`tab:mqar_notation`).
    """


@task("repeated")
class RepeatedSpec(AssociativeRecall):
    """MQAR whose block of facts is written N_k times with the same keys and fresh values; the last value is asked.

    Paper: App. I.2 (`app-subsec:repeated-keys-queries`).
    Departs: the facts fill 2 N_f N_k tokens, so L >= 2 N_f (N_k + 1), where the text takes L >= 4 N_f for granted.
    """

    def _check_repeats(self) -> None:
        """Any number of repeats."""

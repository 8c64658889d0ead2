"""Recall with correlated keys: a key has m tokens, and the keys of one context share some of them.

Plain recall cannot tell error correction from addition, since random keys are almost orthogonal. Correlations that are
the same in every context test nothing, because a learnt linear map undoes them. Here they are new in every sequence:
all tokens are taken from a random order of the key tokens, so every token is equally likely in every place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from recallscope.specs import Fraction, Size, Steps, TaskSpec, task

if TYPE_CHECKING:
    import torch

    from recallscope.tasks.batch import Batch


@task("template_mqar")
class TemplateMQAR(TaskSpec):
    """N_f facts, each a key of m tokens and a value; then every key is asked, in random order, without filler.

    Every sequence draws a template of m tokens. A key has a token of its own in one place, uniform over the places; any
    other place holds the template's token with chance rho, else a fresh one. With `rows` and `columns`, keys are
    distinct cells of a table instead: a row token, then a column token. rho = 0 is plain recall with m-token keys.

    A memory must see a key and its value in one window: a single layer needs conv_width = m + 1.
    """

    vocab_size: Size = Field(description="V, even: tokens 1..V/2-1 are key tokens, V/2..V-1 values, 0 is neither")
    num_facts: Size = Field(description="N_f, key-value pairs in the context")
    key_tokens: Size = Field(2, description="m, tokens of a key; a single layer needs conv_width = m + 1")
    rho: Fraction = Field(0.0, description="chance that a place of a key, other than its own, holds a shared token")
    rows: Steps = Field(0, description="keys are cells of a table with this many row tokens; 0: no table")
    columns: Steps = Field(0, description="column tokens of the table")

    @model_validator(mode="after")
    def _there_are_enough_tokens(self) -> TemplateMQAR:
        V, N_f, m = self.vocab_size, self.num_facts, self.key_tokens
        if V % 2:
            raise ValueError(
                f"vocab_size={V} is odd: half of the tokens are keys and half are values. Use vocab_size={V + 1}."
            )
        if self.rows or self.columns:
            self._check_table()
        if self.distinct_tokens > V // 2 - 1:
            raise ValueError(
                f"num_facts={N_f} with key_tokens={m} takes {self.distinct_tokens} distinct key tokens, but "
                f"vocab_size={V} leaves {V // 2 - 1} (tokens 1..V/2-1; 0 is never a key). Use vocab_size >= "
                f"{2 * self.distinct_tokens + 2}."
            )
        return self

    def _check_table(self) -> None:
        cells, m = self.rows * self.columns, self.key_tokens
        if not cells:
            raise ValueError(
                f"rows={self.rows} and columns={self.columns}: a table has at least one of each. Give both, or none."
            )
        if m != 2 or self.rho:
            raise ValueError(
                f"key_tokens={m}, rho={self.rho:g}: a cell of a table is a row token and a column token, without a "
                f"template. Use key_tokens=2 and rho=0, or leave out rows and columns."
            )
        if self.num_facts > cells:
            raise ValueError(
                f"num_facts={self.num_facts} needs as many distinct cells, and the table has {self.rows} x "
                f"{self.columns} = {cells}. Use num_facts <= {cells}, or a larger table."
            )

    @property
    def distinct_tokens(self) -> int:
        """Key tokens that a sequence draws: those of the table, or of the template and of every place of every key."""
        return self.rows + self.columns or self.key_tokens * (self.num_facts + 1)

    @property
    def context_length(self) -> int:
        """Tokens of the facts section, N_f (m + 1)."""
        return self.num_facts * (self.key_tokens + 1)

    @property
    def sequence_length(self) -> int:
        """Facts, then m tokens for every query."""
        return self.context_length + self.num_queries * self.key_tokens

    @property
    def num_queries(self) -> int:
        """Questions asked in one sequence: every fact once."""
        return self.num_facts

    def levels(self) -> tuple[TemplateMQAR, ...]:
        """The same task with 1, 2, 4, ... facts, then itself."""
        fewer = (2**power for power in range(self.num_facts.bit_length()) if 2**power < self.num_facts)
        return (*(self.model_copy(update={"num_facts": n}) for n in fewer), self)

    def draw(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Independent sequences of the task, on the generator's device."""
        from recallscope.tasks.drawing import draw_templates

        return draw_templates(self, batch_size, generator)


@task("template_ar")
class TemplateAR(TemplateMQAR):
    """As `template_mqar`, with one query. It is the test of error correction: a delta rule that is asked many times
    learns to erase the shared tokens while it is asked.
    """

    @property
    def num_queries(self) -> int:
        """One."""
        return 1

"""Facts in a model's own tokens: single-token words as keys and values, and the line that joins them.

A template is a line with {key} and {value}. Each word is tried in such lines: it is used if it is one token there, and
the tokens around it are the same as for other words. So it needs not be known how a tokenizer treats spaces.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any

import numpy as np

from recallscope.registry import suggestion

TEMPLATES = {"bare": "{key}: {value}\n", "natural": "The code for {key} is {value}.\n"}
BY_NUMBER = "token numbers"  # the template where there is no tokenizer: a key, its value, nothing else
SHORTEST_WORD = 3  # letters
LEAST_WORDS = 8  # of each sort; with fewer there is nothing to measure
PAIRS_TRIED = 200  # of words, before a template is given up


@dataclass(frozen=True)
class Wording:
    """Tokens of the lines: head, then key, between, value, end for every fact. A question ends before its value."""

    template: str
    head: tuple[int, ...]
    between: tuple[int, ...]
    end: tuple[int, ...]
    keys: tuple[int, ...]
    values: tuple[int, ...]
    words: Mapping[int, str]

    @property
    def fact_tokens(self) -> int:
        """Tokens of one line."""
        return 2 + len(self.between) + len(self.end)

    def facts(self, keys: Sequence[int], values: Sequence[int]) -> list[int]:
        """The lines of some facts, in order, without the head."""
        lines = ((key, *self.between, value, *self.end) for key, value in zip(keys, values, strict=True))
        return [token for line in lines for token in line]

    def question(self, key: int) -> list[int]:
        """What is asked after a line: the value is the next token."""
        return [key, *self.between]

    def length(self, num_facts: int) -> int:
        """Tokens of a context with its question."""
        return len(self.head) + num_facts * self.fact_tokens + 1 + len(self.between)

    @property
    def most_facts(self) -> int:
        """As many as there are keys and values for."""
        return min(len(self.keys), len(self.values))

    def facts_within(self, tokens: int | None) -> int:
        """The most facts whose context, with its question, has at most so many tokens; None is no limit."""
        if tokens is None:
            return self.most_facts
        return min(self.most_facts, max(tokens - self.length(0), 0) // self.fact_tokens)

    def with_examples(self, shots: int, rng: np.random.Generator) -> Wording:
        """With example facts in the head, each written and then repeated; their words are used for nothing else."""
        most = self.most_facts - LEAST_WORDS
        if not 0 <= shots <= most:
            raise ValueError(f"shots={shots}: there are words for 0 to {most} example facts.")
        if not shots:
            return self
        keys, values = self.keys[-shots:], self.values[-shots:]
        order = rng.permutation(shots)
        again = self.facts([keys[i] for i in order], [values[i] for i in order])
        head = (*self.head, *self.facts(keys, values), *again)
        return replace(self, head=head, keys=self.keys[:-shots], values=self.values[:-shots])


def by_number(vocab_size: int, most: int, rng: np.random.Generator) -> Wording:
    """Tokens by their numbers, as in the paper's task: keys from the lower half, values from the upper one."""
    from recallscope.architectures.capabilities import key_tokens, value_tokens

    numbers = np.arange(vocab_size)
    keys, values = (
        tuple(int(token) for token in rng.permutation(numbers[part])[:most])
        for part in (key_tokens(vocab_size), value_tokens(vocab_size))
    )
    _require_words(len(keys), len(values), f"a vocabulary of {vocab_size}")
    return Wording(BY_NUMBER, (), (), (), keys, values, {token: str(token) for token in (*keys, *values)})


def wording(tokenizer: Any, template: str, most: int, rng: np.random.Generator) -> Wording:
    """The lines of a template in a tokenizer's tokens, with at most `most` keys and as many values.

    `tokenizer` is one of transformers or of the tokenizers library, or anything with `encode`, `decode` and
    `get_vocab`. Words are drawn from its vocabulary in random order: lower-case letters only, three or more.
    """
    line = _line(template)
    found = _words(tokenizer, rng)
    sample = list(islice(found, PAIRS_TRIED))
    placed = {pair: seen for pair in pairwise(sample) if (seen := _placed(tokenizer, line, *pair))}
    if not placed:
        raise ValueError(
            f"no two words of this tokenizer are one token each in lines such as {line.strip()!r} ({len(sample)} words "
            f"of {SHORTEST_WORD} letters or more were tried). A tokenizer of letters or bytes has none; for others, "
            f"try another --template, such as '{{key}} {{value}}\\n'."
        )
    usual = Counter(seen.frame for seen in placed.values()).most_common(1)[0][0]
    (key, value), first = next((pair, seen) for pair, seen in placed.items() if seen.frame == usual)
    keys, values = {first.key: key}, {first.value: value}
    for word in (*sample, *found):
        if len(keys) >= most and len(values) >= most:
            break
        if word in (key, value):
            continue
        if len(keys) <= len(values) and len(keys) < most:
            if (seen := _placed(tokenizer, line, word, value)) and seen.frame == usual:
                keys[seen.key] = word
        elif (seen := _placed(tokenizer, line, key, word)) and seen.frame == usual:
            values[seen.value] = word
    _require_words(len(keys), len(values), f"this tokenizer, in lines such as {line.strip()!r}")
    head, between, end = usual
    return Wording(template, (*_first_tokens(tokenizer), *head), between, end, (*keys,), (*values,), keys | values)


def _line(template: str) -> str:
    """The text of a template: one of ours by name, or a line of the user's own."""
    line = TEMPLATES.get(template, template.replace("\\n", "\n"))
    before, _, after = line.partition("{key}")
    if "{key}" in after or "{value}" in before or after.count("{value}") != 1:
        near = suggestion(template, TEMPLATES) if "{" not in template else ""
        raise ValueError(
            f"template={template!r} is no line with {{key}} and then {{value}}. {near} "
            f"Write one such as '{{key}}: {{value}}\\n'.".replace("  ", " ")
        )
    return line


def _require_words(keys: int, values: int, of: str) -> None:
    if min(keys, values) < LEAST_WORDS:
        raise ValueError(
            f"{of} gives {keys} keys and {values} values of one token each, and a probe needs {LEAST_WORDS} of both. "
            f"Use another --template, or a tokenizer with whole words."
        )


def _words(tokenizer: Any, rng: np.random.Generator) -> Iterator[str]:
    """The readable words of a vocabulary, each once, in random order."""
    ids = np.array(sorted(set(tokenizer.get_vocab().values())))
    special = set(getattr(tokenizer, "all_special_ids", ()))
    seen: set[str] = set()
    for token in rng.permutation(ids).tolist():
        word = _text(tokenizer, token)
        readable = len(word) >= SHORTEST_WORD and word.isalpha() and word == word.lower()
        if readable and token not in special and word not in seen:
            seen.add(word)
            yield word


@dataclass(frozen=True)
class _Placed:
    """Key and value in a line, and the tokens around them: before the first line, between the two, after the value."""

    key: int
    value: int
    frame: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def _placed(tokenizer: Any, line: str, key: str, value: str) -> _Placed | None:
    """The line within two others like it; None if either word is not one token there."""
    ids = _encode(tokenizer, 3 * line.replace("{key}", key).replace("{value}", value))
    texts = [_text(tokenizer, token) for token in ids]
    keys, values = ([place for place, text in enumerate(texts) if text == word] for word in (key, value))
    if len(keys) != 3 or len(values) != 3 or sorted(keys + values)[::2] != keys:
        return None
    (first, second, third), (_, answer, _) = keys, values
    if third - second != second - first:
        return None
    frame = tuple(ids[:first]), tuple(ids[second + 1 : answer]), tuple(ids[answer + 1 : third])
    return _Placed(ids[second], ids[answer], frame)


def _encode(tokenizer: Any, text: str, *, special: bool = False) -> list[int]:
    """Token numbers, from either library."""
    found = tokenizer.encode(text, add_special_tokens=special)
    return [int(token) for token in getattr(found, "ids", found)]


def _text(tokenizer: Any, token: int) -> str:
    return str(tokenizer.decode([token])).strip()


def _first_tokens(tokenizer: Any) -> list[int]:
    """What the tokenizer puts before every text, such as a token for its beginning."""
    whole, plain = (_encode(tokenizer, "a", special=special) for special in (True, False))
    place = next((at for at in range(len(whole)) if whole[at : at + len(plain)] == plain), 0)
    return whole[:place]

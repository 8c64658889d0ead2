"""Facts in a model's own tokens: single-token words as keys and values, and the line that joins them.

A template is a line with {key} and {value}. Each word is tried in such lines: it is used if it is one token there, and
the tokens around it are the same as for other words. So it needs not be known how a tokenizer treats spaces.

Words are common English ones (`english.txt`) where the tokenizer has enough of them as single tokens; otherwise, as
with a tokenizer of another language or a made-up one, any lower-case tokens of its vocabulary. A wording has all of
them, whatever the seed: each context draws its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.resources import files
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recallscope.registry import suggestion

TEMPLATES = {"bare": "{key}: {value}\n", "natural": "The code for {key} is {value}.\n"}
BY_NUMBER = "token numbers"  # the template where there is no tokenizer: a key, its value, nothing else
TOLD, ASKED = "Remember these lines.\n", "\nComplete this line:\n"  # by the user of a chat, before lines and query
ENGLISH, VOCABULARY, NUMBERS = (
    f"{words}, drawn for every context" for words in ("common English words", "the tokenizer's vocabulary", BY_NUMBER)
)
SHOTS = 4  # example facts of lines, unless given
SHORTEST_WORD = 3  # letters
LEAST_WORDS = 8  # values to choose from; with fewer there is nothing to measure
ENOUGH_WORDS = 64  # values to choose from, for which only common English words are used
MOST_WORDS = 2048  # keys, and values, unless more are asked for: all of the English list
ORDER = 0  # seed of the order in which words are tried, the same for every probe
PAIRS_TRIED = 200  # of words, before a template is given up


@dataclass(frozen=True)
class Wording:
    """The tokens of a context: head; key, between, value, end of every fact but the last, which has no end; tail.

    A query follows it: `query` with its key in the place of None. The value is the next token. Of `keys` and `values`
    each context draws its own; a word may be both, in two places of the line, but not in one context.
    """

    template: str
    head: tuple[int, ...]
    between: tuple[int, ...]
    end: tuple[int, ...]
    tail: tuple[int, ...]
    query: tuple[int | None, ...]
    keys: tuple[int, ...]
    values: tuple[int, ...]
    words: Mapping[int, str]
    source: str
    """where the words are from"""
    candidates: int = 0
    """values of a forced choice; as many facts fit into a context at most"""
    shots: int = 0
    """example facts before the others, each written twice"""

    @property
    def fact_tokens(self) -> int:
        """Tokens of one line."""
        return 2 + len(self.between) + len(self.end)

    def facts(self, keys: Sequence[int], values: Sequence[int]) -> list[int]:
        """The lines of some facts, in order, without the head; the last has no end."""
        lines = ((key, *self.between, value, *self.end) for key, value in zip(keys, values, strict=True))
        told = [token for line in lines for token in line]
        return told[: len(told) - len(self.end)]

    def context(self, keys: Sequence[int], values: Sequence[int]) -> list[int]:
        """Everything that is read before a query."""
        return [*self.head, *self.facts(keys, values), *self.tail]

    def ask(self, key: int) -> list[int]:
        """The query of a key."""
        return [key if token is None else token for token in self.query]

    def length(self, num_facts: int) -> int:
        """Tokens of a context with its query."""
        lines = (num_facts + 2 * self.shots) * self.fact_tokens
        return len(self.head) + lines - len(self.end) + len(self.tail) + len(self.query)

    def facts_within(self, tokens: int | None) -> int:
        """The most facts whose context, with its query, has at most so many tokens; None is no limit."""
        if tokens is None:
            return self.candidates
        return min(self.candidates, max(tokens - self.length(0), 0) // self.fact_tokens)

    @cached_property
    def key_of_value(self) -> NDArray[np.int64]:
        """For each value the key that is the same word, or -1."""
        places = {self.words[token]: place for place, token in enumerate(self.keys)}
        return np.array([places.get(self.words[token], -1) for token in self.values])

    @property
    def room(self) -> int:
        """The most facts of a context with as many candidates: no word may be both key and value in it."""
        alone = int((self.key_of_value < 0).sum())
        return min(len(self.keys), max(alone, len(self.values) // 2))

    def sized(self, candidates: int, shots: int | None = 0) -> Wording:
        """With so many candidates, or as many as there are words for; None is `SHOTS` examples, or as many."""
        most = self.room - LEAST_WORDS
        shots = min(SHOTS, most) if shots is None else shots
        if not 0 <= shots <= most:
            raise ValueError(f"shots={shots}: there are words for 0 to {most} example facts.")
        return replace(self, candidates=min(candidates, self.room - shots), shots=shots)


def by_number(vocab_size: int, count: int = MOST_WORDS) -> Wording:
    """Tokens by their numbers, as in the paper's task: keys from the lower half, values from the upper one."""
    from recallscope.architectures.capabilities import key_tokens, value_tokens

    rng, numbers = np.random.default_rng(ORDER), np.arange(vocab_size)
    keys, values = (
        tuple(int(token) for token in rng.permutation(numbers[part])[:count])
        for part in (key_tokens(vocab_size), value_tokens(vocab_size))
    )
    names = {token: str(token) for token in (*keys, *values)}
    found = Wording(BY_NUMBER, (), (), (), (), (None,), keys, values, names, NUMBERS)
    return _with_enough_words(found, f"a vocabulary of {vocab_size}")


def wording(tokenizer: Any, template: str, count: int = MOST_WORDS, *, chat: bool = False) -> Wording:
    """The lines of a template in a tokenizer's tokens, with `count` keys and as many values, or all there are.

    `tokenizer` is one of transformers or of the tokenizers library, or anything with `encode`, `decode` and
    `get_vocab`. Words have lower-case letters only, three or more. With `chat` the lines are a user's message in the
    tokenizer's chat template, which transformers renders in a sandbox.
    """
    lines, rng = _Lines(tokenizer, _line(template), chat), np.random.default_rng(ORDER)
    found = _fitting(lines, rng.permutation(english_words()).tolist(), count, template)
    if found is None or found.room < ENOUGH_WORDS:
        found = _fitting(lines, _vocabulary_words(tokenizer, rng), count, template)
    else:
        found = replace(found, source=ENGLISH)
    if found is None:
        raise ValueError(
            f"no two words of this tokenizer are one token each in lines such as {lines.line.strip()!r}. A tokenizer "
            f"of letters or bytes has none; for others, try another --template, such as '{{key}} {{value}}\\n'."
        )
    return _with_enough_words(found, f"this tokenizer, in lines such as {lines.line.strip()!r},")


def english_words() -> list[str]:
    """The list that ships with the package."""
    text = (files("recallscope.measuring.checkpoints") / "english.txt").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if not line.startswith("#")]


def has_chat_template(tokenizer: Any) -> bool:
    """Whether the model was taught a form of conversation."""
    return bool(getattr(tokenizer, "chat_template", None))


def _fitting(lines: _Lines, words: Iterable[str], count: int, template: str) -> Wording | None:
    """The words that fit into the lines, as keys and as values; None if there are no two."""
    words = iter(words)
    sample = [word for word, _ in zip(words, range(PAIRS_TRIED), strict=False)]
    placed = {pair: seen for pair in pairwise(sample) if (seen := lines.place(*pair))}
    if not placed:
        return None
    usual = Counter(seen.frame for seen in placed.values()).most_common(1)[0][0]
    (key, value), first = next((pair, seen) for pair, seen in placed.items() if seen.frame == usual)
    keys, values = {first.key: key}, {first.value: value}
    for word in (*sample, *words):
        if min(len(keys), len(values)) >= count:
            break
        if word in (key, value):
            continue
        if (seen := lines.place(word, value)) and seen.frame == usual:
            keys[seen.key] = word
        if (seen := lines.place(key, word)) and seen.frame == usual:
            values[seen.value] = word
    head, between, end, tail, query = usual
    return Wording(
        template, (*lines.first, *head), between, end, tail, query, (*keys,)[:count], (*values,)[:count], keys | values,
        VOCABULARY,
    )  # fmt: skip


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


def _with_enough_words(found: Wording, of: str) -> Wording:
    if found.room < LEAST_WORDS:
        raise ValueError(
            f"{of} has words of one token each for contexts of {found.room} facts, and a probe needs {LEAST_WORDS}. "
            f"Use another --template, or a tokenizer with whole words."
        )
    return found


def _vocabulary_words(tokenizer: Any, rng: np.random.Generator) -> Iterator[str]:
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


Frame = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int | None, ...]]


@dataclass(frozen=True)
class _Placed:
    """Key and value in a line, and the tokens around them: head, between, end, tail and query of a wording."""

    key: int
    value: int
    frame: Frame


class _Lines:
    """Texts of a few lines, plain or in a chat, and their tokens."""

    def __init__(self, tokenizer: Any, line: str, chat: bool) -> None:
        self.tokenizer, self.line, self.chat = tokenizer, line, chat
        self.first = () if chat else (*_first_tokens(tokenizer),)  # a chat template writes its own beginning

    def text(self, facts: str, query: str) -> str:
        """A context and a query, which in a chat is asked by the user and begun by the assistant."""
        if not self.chat:
            return facts + query
        message = {"role": "user", "content": f"{TOLD}{facts}{ASKED}{query}"}
        try:
            said = self.tokenizer.apply_chat_template([message], tokenize=False, add_generation_prompt=True)
        except Exception as error:  # a template may fail in any way
            first = " ".join(str(error).split())[:200]
            raise ValueError(
                f"the chat template of this checkpoint cannot be used ({type(error).__name__}: {first}). Probe "
                f"without --chat."
            ) from error
        return str(said) + query

    def place(self, key: str, value: str) -> _Placed | None:
        """The line three times, then the query; None if either word is not one token throughout."""
        line = self.line.replace("{key}", key).replace("{value}", value)
        query = self.line.partition("{value}")[0].rstrip().replace("{key}", key)
        ids = _encode(self.tokenizer, self.text(3 * line, query))
        texts = [_text(self.tokenizer, token) for token in ids]
        keys, values = ([at for at, text in enumerate(texts) if text == word] for word in (key, value))
        asked = keys[3:]
        if len(values) != 3 or len(asked) != 1 + self.chat or sorted(keys[:3] + values)[::2] != keys[:3]:
            return None
        (first, second, third), (_, answer, last) = keys[:3], values
        if third - second != second - first or last > asked[0] or len({ids[at] for at in keys[1:]}) > 1:
            return None
        between, end = tuple(ids[second + 1 : answer]), tuple(ids[answer + 1 : third])
        if tuple(ids[asked[-1] + 1 :]) != between[: len(ids) - 1 - asked[-1]]:
            return None
        query_ids = (*(None if at in asked else ids[at] for at in range(asked[0], asked[-1] + 1)), *between)
        frame = tuple(ids[:first]), between, end, tuple(ids[last + 1 : asked[0]]), query_ids
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

"""Words of one token each, in lines that the tokenizer itself would write."""

import numpy as np
import pytest
from probe_models import byte_tokenizer, letter_tokenizer, word_tokenizer

from recallscope.measuring.checkpoints.words import LEAST_WORDS, TEMPLATES, by_number, wording

LINES = [*TEMPLATES, "{key} -> {value};\\n", "{key} {value} "]


def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def bytes_():
    return byte_tokenizer()


@pytest.mark.parametrize("template", LINES)
def test_the_tokens_are_those_of_the_whole_text(template, bytes_):
    """Spaces belong to the words after them here: keys at the start of a line have none, values have one."""
    found = wording(bytes_, template, 20, rng())
    assert len(found.keys) == len(found.values) == 20
    keys, values = found.keys[3:9], found.values[3:9]
    line = TEMPLATES.get(template, template.replace("\\n", "\n"))
    words = [(found.words[key], found.words[value]) for key, value in zip(keys, values, strict=True)]
    text = "".join(line.replace("{key}", key).replace("{value}", value) for key, value in words)
    asked = line.partition("{value}")[0].rstrip().replace("{key}", words[2][0])
    tokens = [*found.context(keys, values), *found.ask(keys[2])]
    assert bytes_.decode(tokens).strip() == (text + asked).strip()
    if not template.endswith(" "):  # then a space belongs to every key but the first
        assert bytes_.encode(text + asked, add_special_tokens=False) == tokens


def test_keys_and_values_are_readable_single_and_disjoint(bytes_):
    for tokenizer in (bytes_, word_tokenizer()):
        found = wording(tokenizer, "bare", 30, rng())
        words = [found.words[token] for token in (*found.keys, *found.values)]
        assert len(set(words)) == 60
        assert all(word.isalpha() and word.islower() and len(word) >= 3 for word in words)
        assert not {*found.keys, *found.values} & {*tokenizer.all_special_ids}
        assert "code" not in wording(tokenizer, "natural", 30, rng()).words.values()


def test_words_follow_from_the_seed():
    first, again, other = (wording(word_tokenizer(), "bare", 20, np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert first == again
    assert first.keys != other.keys


def test_what_the_tokenizer_puts_first_comes_first():
    from tokenizers.processors import TemplateProcessing

    tokenizer = byte_tokenizer()
    plain = wording(tokenizer, "bare", 10, rng())
    first = tokenizer.bos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", first)])
    assert wording(tokenizer, "bare", 10, rng()).head == (first, *plain.head)


def test_a_tokenizer_without_words_is_refused():
    with pytest.raises(ValueError, match="no two words of this tokenizer are one token each"):
        wording(letter_tokenizer(), "bare", 20, rng())
    with pytest.raises(ValueError, match=f"a probe needs {LEAST_WORDS} of both"):
        wording(word_tokenizer(9), "bare", 20, rng())
    with pytest.raises(ValueError, match="a probe needs"):
        by_number(12, 20, rng())


def test_examples_are_told_and_repeated():
    plain = wording(word_tokenizer(), "natural", 20, rng())
    shown = plain.with_examples(3, rng())
    told = shown.head[len(plain.head) :]
    line = plain.fact_tokens
    assert shown.no_facts == shown.head
    lines = [told[at : at + line] for at in range(0, len(told), line)]
    assert len(lines) == 6
    assert sorted(lines[:3]) == sorted(lines[3:])
    assert {*plain.keys} - {*shown.keys} == {one[0] for one in lines}
    assert shown.length(2) == len([*shown.context(shown.keys[:2], shown.values[:2]), *shown.ask(1)])

"""Words of one token each, in lines that the tokenizer itself would write."""

import numpy as np
import pytest
from probe_models import byte_tokenizer, letter_tokenizer, word_tokenizer

from recallscope.measuring.checkpoints.asking import draw_contexts
from recallscope.measuring.checkpoints.words import ASKED, LEAST_WORDS, TEMPLATES, TOLD, by_number, wording

LINES = [*TEMPLATES, "{key} -> {value};\\n", "{key} {value} "]


def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="module")
def bytes_():
    return byte_tokenizer()


@pytest.mark.parametrize("template", LINES)
def test_the_tokens_are_those_of_the_whole_text(template, bytes_):
    """Spaces belong to the words after them here: keys at the start of a line have none, values have one."""
    found = wording(bytes_, template, 20)
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


def test_keys_and_values_are_readable_and_single(bytes_):
    for tokenizer in (bytes_, word_tokenizer()):
        found = wording(tokenizer, "bare", 30)
        words = [found.words[token] for token in (*found.keys, *found.values)]
        assert len({*found.keys}) == len({*found.values}) == 30
        assert all(word.isalpha() and word.islower() and len(word) >= 3 for word in words)
        assert not {*found.keys, *found.values} & {*tokenizer.all_special_ids}
        assert "code" not in wording(tokenizer, "natural", 30).words.values()


@pytest.mark.parametrize("shots", [0, 3])
def test_every_context_has_its_own_words_and_none_twice(shots):
    """In these lines most words may be key or value."""
    found = wording(word_tokenizer(), "bare").sized(30, shots)
    drawn = draw_contexts(found, 9, 40, rng())
    for row in range(40):
        keys, values = (set(one[row].tolist()) for one in (drawn.keys, drawn.values))
        choices = set(drawn.candidates[row].tolist())
        shown = [set(one[row].tolist()) for one in (drawn.shown_keys, drawn.shown_values)]
        words = [found.words[found.keys[key]] for key in keys | shown[0]]
        words += [found.words[found.values[value]] for value in choices | shown[1]]
        assert len(set(words)) == len(words) == 9 + 30 + 2 * shots
        assert values < choices
        assert list(choices) != list(drawn.candidates[(row + 1) % 40])
    assert len({*drawn.keys.flatten().tolist()}) > 90, "40 contexts of 9 use nearly all 97"
    assert [len(one) for one in (found.keys, found.values)] == [97, 97]


def test_a_value_has_the_same_chance_at_every_place_of_the_choices():
    """A model that cannot tell the candidates apart names the first: it is right 1 time in 30. Four standard errors."""
    drawn = draw_contexts(wording(word_tokenizer(), "bare").sized(30), 9, 2000, rng())
    assert (drawn.candidates[:, :1] == drawn.values).mean() == pytest.approx(1 / 30, abs=4 * (1 / 30 / 18000) ** 0.5)


def test_what_the_tokenizer_puts_first_comes_first():
    from tokenizers.processors import TemplateProcessing

    tokenizer = byte_tokenizer()
    plain = wording(tokenizer, "bare", 20)
    first = tokenizer.bos_token_id
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", first)])
    assert wording(tokenizer, "bare", 20).head == (first, *plain.head)


def test_a_tokenizer_without_words_is_refused():
    with pytest.raises(ValueError, match="no two words of this tokenizer are one token each"):
        wording(letter_tokenizer(), "bare", 20)
    with pytest.raises(ValueError, match=f"a probe needs {LEAST_WORDS}"):
        wording(word_tokenizer(9), "bare")
    with pytest.raises(ValueError, match="a probe needs"):
        by_number(12)


def test_examples_are_told_and_repeated():
    found = wording(word_tokenizer(), "natural").sized(20, 3)
    drawn = draw_contexts(found, 2, 1, rng())
    keys, values = ([tokens[at] for at in one[0]] for tokens, one in zip(
        (found.keys, found.values), drawn.lines(np.arange(1)), strict=True))  # fmt: skip
    assert sorted(zip(keys[:3], values[:3], strict=True)) == sorted(zip(keys[3:6], values[3:6], strict=True))
    assert len(set(keys)) == 5
    assert found.length(2) == len([*found.context(keys, values), *found.ask(1)])


CHAT = (
    "{% for message in messages %}<user>\n{{ message.content }} <end>\n{% endfor %}"
    "{% if add_generation_prompt %}<reply>\n{% endif %}"
)


def test_a_chat_puts_the_facts_into_the_template_and_the_query_into_the_reply(bytes_):
    """All tokens are those of the rendered text: facts and key are the user's, and the reply begins with the key."""
    bytes_.chat_template = CHAT
    found = wording(bytes_, "bare", 40, chat=True).sized(12)
    keys, values = found.keys[3:6], found.values[6:9]
    lines = "".join(f"{found.words[key]}: {found.words[value]}\n" for key, value in zip(keys, values, strict=True))
    query = f"{found.words[keys[1]]}:"
    rendered = f"<user>\n{TOLD}{lines}{ASKED}{query} <end>\n<reply>\n{query}"
    assert bytes_.decode([*found.context(keys, values), *found.ask(keys[1])]) == rendered


@pytest.mark.parametrize(
    ("template", "what"),
    [
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{% for i in range(10**12) %}x{% endfor %}", "OverflowError"),
        ("{% if %}", "TemplateSyntaxError"),
        ("{{ raise_exception('no') }}", "TemplateError: no"),
    ],
)
def test_a_chat_template_runs_in_a_sandbox(template, what):
    tokenizer = word_tokenizer()
    tokenizer.chat_template = template
    with pytest.raises(ValueError, match=rf"chat template of this checkpoint cannot be used \({what}.* without --chat"):
        wording(tokenizer, "bare", chat=True)


def test_a_chat_template_that_leaves_out_what_is_said_is_refused():
    tokenizer = word_tokenizer()
    tokenizer.chat_template = "code code"
    with pytest.raises(ValueError, match="no two words of this tokenizer"):
        wording(tokenizer, "bare", chat=True)

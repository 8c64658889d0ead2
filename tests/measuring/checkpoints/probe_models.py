"""Small tokenizers and checkpoints in Hugging Face format, made here."""

import itertools
from pathlib import Path

import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

WORDS = ["".join(letters) for letters in itertools.product("bdfgklmnprstvz", "aeiou", "bdgklmnprst")]
SIZES = {"hidden_size": 32, "num_hidden_layers": 2}


def word_tokenizer(count: int = 96) -> PreTrainedTokenizerFast:
    """One token per word, spaces dropped."""
    vocab = {
        word: number for number, word in enumerate(["<unk>", ":", ".", "The", "code", "for", "is", *WORDS[:count]])
    }
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>")


def byte_tokenizer(merges: int = 1200) -> PreTrainedTokenizerFast:
    """Byte-level BPE, in which a space belongs to the word after it, as GPT-NeoX has it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    text = ["\n".join(f"{word}: {word}\n The code for {word} is {word}." for word in WORDS[:200])] * 3
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=256 + merges, initial_alphabet=alphabet, special_tokens=["<s>"])
    tokenizer.train_from_iterator(text, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")


def letter_tokenizer() -> PreTrainedTokenizerFast:
    """No word is one token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=256, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(["a"], trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def _qwen(vocab_size: int) -> hf.PreTrainedModel:
    config = hf.Qwen3NextConfig(
        vocab_size=vocab_size, **SIZES, num_attention_heads=4, num_key_value_heads=2, intermediate_size=48, head_dim=8,
        linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=8, linear_value_head_dim=8,
        mlp_only_layers=[0, 1], layer_types=["linear_attention", "full_attention"],
    )  # fmt: skip
    return hf.Qwen3NextForCausalLM(config)


def _llama(vocab_size: int) -> hf.PreTrainedModel:
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = hf.LlamaConfig(vocab_size=vocab_size, **SIZES, **heads, intermediate_size=48, max_position_embeddings=512)
    return hf.LlamaForCausalLM(config)


FAMILIES = {
    "mamba": lambda V: hf.MambaForCausalLM(hf.MambaConfig(vocab_size=V, state_size=8, **SIZES)),
    "mamba2": lambda V: hf.Mamba2ForCausalLM(
        hf.Mamba2Config(vocab_size=V, state_size=8, num_heads=8, head_dim=8, n_groups=1, chunk_size=16, **SIZES)
    ),
    "falcon_mamba": lambda V: hf.FalconMambaForCausalLM(hf.FalconMambaConfig(vocab_size=V, state_size=8, **SIZES)),
    "qwen3_next": _qwen,
    "llama": _llama,
}
RECURRENT = ("mamba", "mamba2", "falcon_mamba", "qwen3_next")


def build(family: str, vocab_size: int) -> hf.PreTrainedModel:
    """A random model; all weights are moved from where they start, so that no part of it does nothing."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = FAMILIES[family](vocab_size)
        for weight in model.parameters():
            weight.data += 0.1 * torch.randn(weight.shape)
    return model.eval()


def save(family: str, folder: Path, tokenizer: PreTrainedTokenizerFast | None = None, **options: object) -> Path:
    """A checkpoint as anybody would save it."""
    tokenizer = tokenizer or word_tokenizer()
    build(family, len(tokenizer)).save_pretrained(folder, **options)
    tokenizer.save_pretrained(folder)
    return folder

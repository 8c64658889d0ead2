"""Train two small checkpoints on lines such as `key: value`, save them as Hugging Face folders, and probe them.

python results/probe/make.py [FOLDER]   about ten minutes of one core; weights go to FOLDER (runs/probe-models)

A two-layer Mamba and a two-layer Llama-type transformer with the same width, tokenizer and batches. Any word may be key
or value. Records, figure and README are written beside this file; weights are not kept in the repository.
"""

import itertools
import math
import sys
import time
from pathlib import Path

import numpy as np
import torch
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from recallscope.architectures.pretrained import from_pretrained

HERE = Path(__file__).resolve().parent
WORDS, WIDTH, LAYERS, STATE, HEADS = 128, 64, 2, 4, 4
MOST_FACTS, QUESTIONS, TOKENS = 64, 24, 3072  # of a training sequence; tokens of a batch
COLON = 1
READY = 0.7  # recall at which contexts become longer


def tokenizer() -> hf.PreTrainedTokenizerFast:
    """One token per word; spaces and ends of lines are dropped."""
    words = ["".join(letters) for letters in itertools.product("bdfgklmnprstvz", "aeiou", "bdgklmnprst")][:WORDS]
    found = Tokenizer(models.WordLevel({w: i for i, w in enumerate(["<unk>", ":", *words])}, unk_token="<unk>"))
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    return hf.PreTrainedTokenizerFast(tokenizer_object=found, unk_token="<unk>")


def draw(rng: np.random.Generator, hardest: float) -> tuple[Tensor, Tensor, Tensor]:
    """Lines with facts, then lines that repeat some of them: tokens, where a value is asked for, and those values."""
    n = round(math.exp(rng.uniform(math.log(2), math.log(hardest))))
    asked = min(n, QUESTIONS)
    rows = max(4, min(96, TOKENS // (3 * (n + asked))))
    words = 2 + np.stack([rng.permutation(WORDS)[: 2 * n] for _ in range(rows)])
    lines = np.stack([words[:, :n], np.full((rows, n), COLON), words[:, n:]], axis=2)
    which = np.stack([rng.permutation(n)[:asked] for _ in range(rows)])
    again = np.take_along_axis(lines, which[:, :, None], axis=1)
    tokens = np.concatenate([lines, again], axis=1).reshape(rows, -1)
    positions = np.broadcast_to(3 * n + 3 * np.arange(asked) + 1, (rows, asked)).copy()
    return torch.from_numpy(tokens), torch.from_numpy(positions), torch.from_numpy(again[:, :, 2].copy())


def train(answer, parameters, seconds: float, rate: float, seed: int) -> None:
    """AdamW for so many seconds of process time, with warm-up and cosine; contexts become longer as recall allows."""
    rng, parameters = np.random.default_rng(seed), list(parameters)
    optimizer = torch.optim.AdamW(parameters, lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    began, step, shown, mean, hardest = time.process_time(), 0, 0.0, 0.0, 4.0
    while (part := (time.process_time() - began) / seconds) < 1:
        optimizer.param_groups[0]["lr"] = rate * min(1, (step + 1) / 100) * (0.02 + 0.98 * math.cos(math.pi * part / 2) ** 2)
        tokens, positions, values = draw(rng, hardest)
        logits = answer(tokens, positions)
        loss = cross_entropy(logits.flatten(0, 1), values.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        right = float((logits.argmax(-1) == values).float().mean())
        mean = 0.97 * mean + 0.03 * right
        if mean > READY:
            hardest = min(1.02 * hardest, MOST_FACTS)
        if part - shown > 0.05:
            shown = part
            print(f"  {part:4.0%}  step {step}  facts up to {hardest:.0f}  loss {float(loss.detach()):.3f}  recall {mean:.3f}", flush=True)


def make_mamba(folder: Path, seconds: float, seed: int = 0) -> None:
    """Train as a model of ours, whose scan is compiled, and write the weights back under Hugging Face's names."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = hf.MambaConfig(
            vocab_size=WORDS + 2, hidden_size=WIDTH, state_size=STATE, num_hidden_layers=LAYERS, residual_in_fp32=False
        )
        theirs = hf.MambaForCausalLM(config)
    theirs.save_pretrained(folder)
    ours = from_pretrained(folder)
    train(ours.answer, ours.parameters(), seconds, 4e-3, seed)
    weights = {f"backbone.{name}": tensor for name, tensor in ours.state_dict().items() if name != "E"}
    theirs.load_state_dict(weights | {"backbone.embeddings.weight": ours.E.T, "lm_head.weight": ours.E.T})
    theirs.save_pretrained(folder)
    tokenizer().save_pretrained(folder)


def make_transformer(folder: Path, seconds: float, seed: int = 0) -> None:
    """As transformers has it."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = hf.LlamaConfig(
            vocab_size=WORDS + 2, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=LAYERS,
            num_attention_heads=HEADS, max_position_embeddings=1024, tie_word_embeddings=True,
        )  # fmt: skip
        model = hf.LlamaForCausalLM(config)

    def answer(tokens: Tensor, positions: Tensor) -> Tensor:
        hidden = model.model(input_ids=tokens, use_cache=False).last_hidden_state
        return model.lm_head(hidden.gather(1, positions[..., None].expand(-1, -1, hidden.shape[-1])))

    train(answer, model.parameters(), seconds, 3e-3, seed)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)


if __name__ == "__main__":
    torch.set_num_threads(1)
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/probe-models")
    print("mamba"); make_mamba(target / "mamba", float(sys.argv[2]))
    print("llama"); make_transformer(target / "transformer", float(sys.argv[2]))

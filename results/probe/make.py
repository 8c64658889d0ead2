"""Train two small checkpoints on lines such as `key: value`, save them as Hugging Face folders, and probe them.

python results/probe/make.py [FOLDER]   about ten minutes of one core; weights go to FOLDER (runs/probe-models)

A two-layer Mamba and a two-layer Llama-type transformer with the same width and tokenizer. Any word may be key
or value. Records, figure and README are written beside this file; weights are not kept in the repository.
"""

import itertools
import json
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
from recallscope.figures.probe import probe_figure
from recallscope.figures.style import figure_style, write_figure
from recallscope.measuring.checkpoints.checkpoint import load_checkpoint
from recallscope.measuring.checkpoints.page import compared
from recallscope.measuring.checkpoints.probe import probe
from recallscope.measuring.checkpoints.record import ProbeRecord, keep_probe

HERE = Path(__file__).resolve().parent
STORE = HERE / "store"
WORDS, WIDTH, LAYERS, STATE, HEADS = 128, 64, 2, 4, 4
MOST_FACTS, QUESTIONS = 64, 24  # of a training sequence
COLON = 1
RATE, READY = 3e-3, 0.65  # of learning; recall at which contexts become longer


def tokenizer() -> hf.PreTrainedTokenizerFast:
    """One token per word; spaces and ends of lines are dropped."""
    words = ["".join(letters) for letters in itertools.product("bdfgklmnprstvz", "aeiou", "bdgklmnprst")][:WORDS]
    found = Tokenizer(models.WordLevel({w: i for i, w in enumerate(["<unk>", ":", *words])}, unk_token="<unk>"))
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    return hf.PreTrainedTokenizerFast(tokenizer_object=found, unk_token="<unk>")


def draw(rng: np.random.Generator, hardest: float, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Lines with facts, then lines that repeat some of them, about `size` tokens in all.

    Tokens, the places where a value is asked for, and those values.
    """
    n = round(math.exp(rng.uniform(math.log(2), math.log(hardest))))
    asked = min(n, QUESTIONS)
    rows = max(4, min(96, size // (3 * (n + asked))))
    words = 2 + np.stack([rng.permutation(WORDS)[: 2 * n] for _ in range(rows)])
    lines = np.stack([words[:, :n], np.full((rows, n), COLON), words[:, n:]], axis=2)
    which = np.stack([rng.permutation(n)[:asked] for _ in range(rows)])
    again = np.take_along_axis(lines, which[:, :, None], axis=1)
    tokens = np.concatenate([lines, again], axis=1).reshape(rows, -1)
    positions = np.broadcast_to(3 * n + 3 * np.arange(asked) + 1, (rows, asked)).copy()
    return torch.from_numpy(tokens), torch.from_numpy(positions), torch.from_numpy(again[:, :, 2].copy())


def train(answer, parameters, steps: int, size: int, hardest: float, seed: int) -> None:
    """AdamW with warm-up, and a cosine over the second half.

    Contexts have up to `hardest` facts, which grows with recall; a batch has about `size` tokens.
    """
    rng, parameters = np.random.default_rng(seed), list(parameters)
    optimizer = torch.optim.AdamW(parameters, lr=RATE, betas=(0.9, 0.98), weight_decay=0.01)
    began, mean = time.process_time(), 0.0
    for step in range(steps):
        fading = 0.02 + 0.98 * math.cos(math.pi * max(0.0, 2 * step / steps - 1) / 2) ** 2
        optimizer.param_groups[0]["lr"] = RATE * min(1, (step + 1) / min(100, steps // 20)) * fading
        tokens, positions, values = draw(rng, hardest, size)
        logits = answer(tokens, positions)
        loss = cross_entropy(logits.flatten(0, 1), values.flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        right = float((logits.argmax(-1) == values).float().mean())
        mean = 0.97 * mean + 0.03 * right
        if mean > READY:
            hardest = min(1.02 * hardest, MOST_FACTS)
        if (step + 1) % 250 == 0:
            spent = time.process_time() - began
            print(f"  step {step + 1}  {spent:.0f} s  facts up to {hardest:.0f}  recall {mean:.3f}", flush=True)


def make_mamba(folder: Path, steps: int = 5000, seed: int = 0) -> None:
    """Train as a model of ours, whose scan is compiled, and write the weights back under Hugging Face's names."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = hf.MambaConfig(
            vocab_size=WORDS + 2, hidden_size=WIDTH, state_size=STATE, num_hidden_layers=LAYERS, residual_in_fp32=False
        )
        theirs = hf.MambaForCausalLM(config)
    theirs.save_pretrained(folder)
    ours = from_pretrained(folder)
    train(ours.answer, ours.parameters(), steps, 3072, 4, seed)
    weights = {f"backbone.{name}": tensor for name, tensor in ours.state_dict().items() if name != "E"}
    theirs.load_state_dict(weights | {"backbone.embeddings.weight": ours.E.T, "lm_head.weight": ours.E.T})
    theirs.save_pretrained(folder)
    tokenizer().save_pretrained(folder)


@torch.no_grad()
def scale_up(embedding: Tensor, norm: Tensor) -> None:
    """Let tied embeddings begin with entries of size 1, as large as what layers add to them; logits stay as they were."""
    size = embedding.std()
    embedding /= size
    norm *= size


@torch.no_grad()
def look_back(model: hf.LlamaForCausalLM, offsets: list[int], strength: float = 40.0) -> None:
    """Let each head of the first layer begin by looking so many tokens back, through the biases of q and k.

    Left to itself, a transformer this small takes far longer than our minutes to find that.
    """
    attention, size = model.model.layers[0].self_attn, WIDTH // HEADS
    angles = model.model.rotary_emb.inv_freq
    for head, offset in enumerate(offsets):
        part = slice(head * size, (head + 1) * size)
        turned = torch.cat((torch.cos(offset * angles), -torch.sin(offset * angles)))
        attention.k_proj.bias[part] = strength**0.5 * torch.cat((torch.ones_like(angles), torch.zeros_like(angles)))
        attention.q_proj.bias[part] = strength**0.5 * turned


def make_transformer(folder: Path, steps: int = 1000, seed: int = 0) -> None:
    """Train as transformers has it, from a start that looks back."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        config = hf.LlamaConfig(
            vocab_size=WORDS + 2, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=LAYERS,
            num_attention_heads=HEADS, max_position_embeddings=1024, tie_word_embeddings=True, attention_bias=True,
            initializer_range=WIDTH**-0.5,
        )  # fmt: skip
        model = hf.LlamaForCausalLM(config)
    scale_up(model.model.embed_tokens.weight, model.model.norm.weight)
    look_back(model, [1, 1, 2, 2])

    def answer(tokens: Tensor, positions: Tensor) -> Tensor:
        hidden = model.model(input_ids=tokens, use_cache=False).last_hidden_state
        return model.lm_head(hidden.gather(1, positions[..., None].expand(-1, -1, hidden.shape[-1])))

    train(answer, model.parameters(), steps, 1536, 8, seed)
    model.save_pretrained(folder)
    tokenizer().save_pretrained(folder)


def probe_all(folder: Path) -> list[ProbeRecord]:
    """Both checkpoints with two seeds of the probe, layers with the first; kept in the store."""
    records = []
    for name in MAKE:
        model, words = load_checkpoint(folder / name, torch.device("cpu"))
        for seed in (0, 1):
            called = f"{name}-seed-{seed}" if seed else name
            records.append(probe(model, words, name=called, seed=seed, shots=0, num_sequences=16, layers=seed == 0))
            keep_probe(records[-1], STORE)
    return records


def write_page(records: list[ProbeRecord]) -> None:
    """Figures and README, from the records alone."""
    first = [record for record in records if record.settings["seed"] == 0]
    with figure_style():
        write_figure(probe_figure(first), HERE / "compared.png")
        write_figure(probe_figure(first[:1]), HERE / "mamba.png")
    columns, rows = compared(records)
    table = "\n".join(f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows))
    speed = json.loads((HERE / "speed.json").read_text())["rows"][-1]
    (HERE / "README.md").write_text(PAGE.format(table=table, **speed), encoding="utf-8")


MAKE = {"mamba": make_mamba, "transformer": make_transformer}
PAGE = """# Two small checkpoints, probed

Written by `make.py`, which trains a two-layer Mamba and a two-layer transformer of width 64 on lines such as `key: value`, minutes of one core
each, saves them in Hugging Face format, and probes them, each with two seeds: other contexts, the same weights. Weights are not kept here;
records are, in `store/`; these were written when words were drawn once for each seed, and n_50 is estimated again when they are read. What the numbers mean is in [docs/PROBE.md](../../docs/PROBE.md).

{table}

`recurrent` and `key-value` are the numbers in the cache after the most facts that were read. There are 128 words, half of them keys and half values, so
no context has more than 64 facts.

**The transformer was given a start.** The heads of its first layer begin by looking one and two tokens back, through the biases of their queries and keys,
and its embeddings begin as large as what the layers add to them. A Mamba looks back by its convolution. All weights of both were trained. The settings of the
transformer were found by trial: without the look back, with shorter first contexts, or with batches twice as large, it did little better than naming any value
of the context in the steps in which this one learnt to recall. For the Mamba, larger embeddings and 16 state dimensions were tried for 400 steps each and dropped. Steps and batches of the two differ. So the pair shows that
the probe tells a small memory from a large one; it is no fair race, and not what a transformer learns by itself in minutes.

![Recall against the number of facts, and by age](compared.png)

The Mamba by itself, with its layers: recall lost when a layer's state is set to zero between reading and asking, and how often a linear map from its
state names the value of a fixed key, one of eight.

![The Mamba, layer by layer](mamba.png)

{queries} queries of {num_facts} facts took {copies:.2f} s of CPU from copies of the cache and {scratch:.2f} s from scratch, {ratio:.0f} times as long
(`benchmarks/probe.py`, `speed.json`).
"""

if __name__ == "__main__":
    torch.set_num_threads(1)
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/probe-models")
    for name, make in MAKE.items():
        if not (target / name / "tokenizer.json").is_file():
            print(name, flush=True)
            make(target / name)
    write_page(probe_all(target))

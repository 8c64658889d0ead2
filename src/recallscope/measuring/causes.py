"""Why a model may not have learned: causes that can be looked at from outside, each with what was found."""

import torch
from torch import Tensor, nn

from recallscope.architectures.model import RecallModel, seeded_global_rng
from recallscope.measuring.learning import Learning
from recallscope.specs import RunSpec, TaskSpec, canonical_json
from recallscope.tasks.drawing import sample_batch

ORDER_BLIND = 0.05  # what swapping two tokens may change, over what replacing one does, for a model without positions
SEED = 0
KEEP_TRYING = 4  # times the steps of the longest run, in the command that is suggested


def likely_causes(model: RecallModel, task: TaskSpec, learning: Learning) -> tuple[str, ...]:
    """Sentences about initial scale, learning rates, curriculum, positions and dropout, of a model as it begins."""
    return (
        *_initial_scale(model),
        _rates(learning),
        *_curriculum(learning),
        *_window(model, task),
        _positions(model, task),
        *_dropout(model, task),
    )


def _initial_scale(model: RecallModel) -> list[str]:
    """Of every embedding of the tokens."""
    found = []
    for name, part in model.named_modules():
        if isinstance(part, nn.Embedding) and part.num_embeddings >= model.vocab_size:
            std, usual = float(part.weight.detach().std()), part.embedding_dim**-0.5
            small = f"small: width^-1/2 = {usual:.3f} or 1 learns sooner" if std < usual / 2 else "not small"
            found.append(f"initial scale: standard deviation {std:.3f} of {name}, width {part.embedding_dim}, {small}")
    return found or ["initial scale: no torch.nn.Embedding reads the tokens, so it was not looked at"]


def _rates(learning: Learning) -> str:
    """Those that were tried, and how far each got."""
    if not learning.searches:
        return f"learning rate: only {learning.last.run.train.learning_rate:g} was tried, as it was given"
    rates = ", ".join(f"{rate:g}" for rate in learning.searches[-1].trials)
    steps = " and ".join(dict.fromkeys(f"{search.steps:,}" for search in learning.searches))
    left = [rate for rate, trial in learning.searches[-1].trials.items() if trial.begun]
    what = f"only {', '.join(map('{:g}'.format, left))} left chance" if left else "all stayed at chance"
    return f"learning rates: {rates} for {steps} steps; {what}"


def _curriculum(learning: Learning) -> list[str]:
    """Whether levels were passed by accuracy or by their deadline."""
    records = [record for record in learning.last.records if record.levels_ended]
    if not records:
        return []
    ended, levels = records[0].levels_ended or [], [2**power for power in range(len(records[0].levels_ended or []))]
    text = ", ".join(f"{level} at step {step:,}" for level, step in zip(levels, ended, strict=True))
    return [f"curriculum: levels of so many facts were left: {text}, of {learning.last.steps:,}"]


def _window(model: RecallModel, task: TaskSpec) -> list[str]:
    """Whether a single layer sees a key and its value at once."""
    m, width = getattr(task, "key_tokens", 1), getattr(model.spec, "conv_width", None)
    if width is None or width > m or getattr(model.spec, "num_layers", 1) > 1:
        return []
    return [f"window: conv_width={width}, but a key and its value are {m + 1} tokens. Use conv_width={m + 1}"]


@torch.no_grad()
def _positions(model: RecallModel, task: TaskSpec) -> str:
    """Does the order of earlier tokens matter? Two of them are swapped, and one of them replaced for comparison."""
    model.eval()
    tokens = sample_batch(task, 8, SEED).tokens
    first, second = 0, min(4, tokens.shape[1] - 2)
    swapped, replaced = tokens.clone(), tokens.clone()
    swapped[:, [first, second]] = tokens[:, [second, first]]
    replaced[:, first] = (tokens[:, first] + 1) % model.vocab_size
    there = model(tokens)[:, -1]
    moved, changed = (float((model(other)[:, -1] - there).norm()) for other in (swapped, replaced))
    ratio = moved / changed if changed > 0 else 0.0
    if ratio < ORDER_BLIND:
        return f"positions: none. Swapping two earlier tokens moves the logits {ratio:.1e} as far as another token does"
    return "positions: the order of earlier tokens changes the logits"


def _dropout(model: RecallModel, task: TaskSpec) -> list[str]:
    """Do two passes of one batch in training mode differ?"""
    model.train()
    tokens, outputs = sample_batch(task, 4, SEED).tokens, list[Tensor]()
    for seed in (0, 1):
        with torch.no_grad(), seeded_global_rng(seed):
            outputs.append(model(tokens))
    model.eval()
    if torch.equal(*outputs):
        return []
    return ["dropout: two passes in training mode differ. Training sequences are all new, so try it without"]


def next_command(run: RunSpec) -> str:
    """The same measurement with four times the steps, to paste into a shell."""
    words = ["recallscope measure", run.model.kind]
    model = {name: value for name, value in run.model.leaving_out().items() if name not in ("kind", "digest")}
    words += [f"--model-args '{canonical_json(model)}'"] if model else []
    for name, value in run.task.leaving_out().items():
        default = type(run.task).model_fields[name].get_default()
        if name == "kind":
            words += [f"--task {value}"] if value != "mqar" else []
        elif value != default:
            words.append(f"--{name.replace('_', '-')} {value}")
    for name in ("warmup_steps", "flat_steps", "decay_steps"):
        words.append(f"--{name.replace('_', '-')} {KEEP_TRYING * getattr(run.train, name)}")
    return " ".join(words)

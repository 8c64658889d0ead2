"""Which layer holds the facts? Recall without each layer's memory, and a linear map from each state to a stored value.

Without: the memory of one layer is set to zero between reading and asking. The linear map: all contexts share one key,
at a random place, with one of a few values; a ridge regression from the state after reading names that value. It is
fitted on some contexts and tested on others; its control has the values shuffled between contexts.
"""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from recallscope.measuring.checkpoints.asking import (
    TOKENS_AT_ONCE,
    Asker,
    OnProgress,
    Part,
    contexts_for,
    draw_contexts,
    part_sizes,
)
from recallscope.measuring.checkpoints.caches import layers_of, named_tensors
from recallscope.measuring.checkpoints.record import Inside, LayerFacts
from recallscope.measuring.checkpoints.words import Wording

CHOICES = 8  # values of the shared key
SHARED_KEYS = 2  # the map is fitted for each of these
CONTEXTS = 384  # for every shared key
TESTED = 128  # of these
MOST_FEATURES = 4096  # more numbers of a state are folded into so many, with random signs
PENALTIES = (1e-3, 1e-2, 0.1, 1.0, 10.0)  # over the mean squared norm of a state; the best when leaving one out


def look_inside(
    asker: Asker,
    growing: set[Part],
    num_facts: int,
    num_sequences: int,
    rng: np.random.Generator,
    on_progress: OnProgress | None = None,
) -> Inside:
    """Every layer with a memory, at one number of facts."""
    n = min(num_facts, asker.wording.candidates - CHOICES - 1)  # the shared key, and its values, are set apart
    drawn = draw_contexts(asker.wording, n, contexts_for(n, num_sequences), rng)
    cache = asker.read(*drawn.lines(np.arange(1)))
    sizes = part_sizes(cache, 1)
    if not layers_of(cache):
        none = "the cache is not kept by layer"
        return Inside(num_facts=n, recall=0.0, choices=CHOICES, layers=[], left_out=none)
    whole = float(asker.ask(drawn, on_progress=on_progress)[0].correct.mean())
    recurrent = sorted({layer for layer, name in sizes if (layer, name) not in growing})
    decoded = _decoded(asker, growing, recurrent, n, rng) if n >= 1 and recurrent else {}
    layers = []
    for layer in sorted({layer for layer, _ in sizes}):
        answers, _ = asker.ask(drawn, reset=layer, on_progress=on_progress)
        without = float(answers.correct.mean())
        kinds = {"key-value" if part in growing else "recurrent" for part in sizes if part[0] == layer}
        score, control = decoded.get(layer, (None, None))
        layers.append(
            LayerFacts(
                layer=layer,
                memory="both" if len(kinds) > 1 else kinds.pop(),
                entries=sum(entries for part, (entries, _) in sizes.items() if part[0] == layer),
                recall_without=without,
                lost=whole - without,
                decoded=score,
                decoded_control=control,
            )
        )
    left = "" if recurrent else "no layer has a recurrent state: the linear map is left out"
    return Inside(num_facts=n, recall=whole, choices=CHOICES, layers=layers, left_out=left)


def _decoded(
    asker: Asker, growing: set[Part], layers: list[int], num_facts: int, rng: np.random.Generator
) -> dict[int, tuple[float, float]]:
    """Accuracy of the linear map from each layer, and of its control, over the shared keys."""
    scores: dict[int, list[tuple[float, float]]] = {layer: [] for layer in layers}
    for key in range(SHARED_KEYS):
        labels = rng.integers(CHOICES, size=CONTEXTS)
        keys, values = _with_shared_key(asker.wording, num_facts, key, labels, rng)
        states = _states(asker, growing, layers, keys, values, int(rng.integers(2**31)))
        target, shuffled = (torch.as_tensor(one, device="cpu") for one in (labels, rng.permutation(labels)))
        for layer in layers:
            scores[layer].append((ridge_accuracy(states[layer], target), ridge_accuracy(states[layer], shuffled)))
    return {layer: tuple(np.mean(found, axis=0).tolist()) for layer, found in scores.items()}


def _with_shared_key(
    wording: Wording, num_facts: int, key: int, labels: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lines of contexts that have one key at a random place, with one of a few values that no other key has."""
    other_keys = np.delete(np.arange(len(wording.keys)), key)
    choices, others = np.split(rng.permutation(np.flatnonzero(wording.key_of_value != key)), [CHOICES])
    rest = replace(
        wording, keys=tuple(wording.keys[at] for at in other_keys), values=tuple(wording.values[at] for at in others)
    ).sized(num_facts, wording.shots)
    rows = np.arange(len(labels))
    told_keys, told_values = draw_contexts(rest, num_facts, len(rows), rng).lines(rows)
    keys, values = other_keys[told_keys], others[told_values]
    places = 2 * wording.shots + rng.integers(num_facts, size=len(rows))
    keys[rows, places], values[rows, places] = key, choices[labels]
    return keys, values


@torch.no_grad()
def _states(
    asker: Asker, growing: set[Part], layers: list[int], keys: NDArray[np.int64], values: NDArray[np.int64], seed: int
) -> dict[int, Float[Tensor, "contexts features"]]:
    """The recurrent state of each layer after every context, as one row of standardised numbers."""
    together = max(32, TOKENS_AT_ONCE // (keys.shape[1] * asker.wording.fact_tokens))
    rows: dict[int, list[Tensor]] = {layer: [] for layer in layers}
    scale: dict[int, tuple[Tensor, Tensor]] = {}
    for part in np.array_split(np.arange(len(keys)), -(-len(keys) // together)):
        cache = asker.read(keys[part], values[part])
        for layer in layers:
            held = named_tensors(layers_of(cache)[layer])
            flat = [tensor.flatten(1).float() for name, tensor in held if (layer, name) not in growing]
            state = torch.cat([tensor for tensor in flat if len(tensor) == len(part)], dim=1).cpu()
            mean, spread = scale.setdefault(layer, (state.mean(dim=0), state.std(dim=0)))
            state = (state - mean) / torch.where(spread > 1e-6 * spread.max(), spread, torch.inf)
            rows[layer].append(_folded(state, torch.Generator("cpu").manual_seed(seed)))
    return {layer: torch.cat(found) for layer, found in rows.items()}


def _folded(state: Float[Tensor, "rows features"], generator: torch.Generator) -> Float[Tensor, "rows fewer"]:
    """At most `MOST_FEATURES` sums of numbers with random signs, which keep distances between states."""
    features = state.shape[1]
    if features <= MOST_FEATURES:
        return state
    signs, place = (
        torch.randint(high, (features,), generator=generator, device=state.device) for high in (2, MOST_FEATURES)
    )
    return state.new_zeros(len(state), MOST_FEATURES).index_add(1, place, state * (2 * signs - 1))


def ridge_accuracy(states: Float[Tensor, "contexts features"], labels: Int[Tensor, " contexts"]) -> float:
    """Share of the last contexts whose label a ridge regression names that was fitted on the others."""
    X, labels = states.double(), labels.to(states.device)
    fitted, tested = X[:-TESTED], X[-TESTED:]
    Y = one_hot(labels[:-TESTED], CHOICES).double()
    Y = Y - Y.mean(dim=0)
    gram = fitted @ fitted.T
    size = gram.diagonal().mean().clamp(min=1e-12)  # a state that is the same after every context
    best: tuple[float, Tensor] | None = None
    for penalty in PENALTIES:
        inverse = torch.linalg.inv(gram + penalty * size * torch.eye(len(gram), dtype=X.dtype, device=X.device))
        alpha = inverse @ Y
        left_out = Y - alpha / inverse.diagonal()[:, None]
        right = float((left_out.argmax(dim=1) == labels[:-TESTED]).double().mean())
        if best is None or right > best[0]:
            best = right, alpha
    assert best is not None
    said = (tested @ fitted.T @ best[1]).argmax(dim=1)
    return float((said == labels[-TESTED:]).double().mean())

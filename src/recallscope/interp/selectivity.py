"""Do keys and values keep out of each other's way, and which law do the codes obey?

Everything is read from the predicted blocks of G_vv and G_kq, diagonals scaled to mean 1, as weights themselves
depend on the rotation: the blocks are Gram matrices EᵀE and ẼᵀẼ of codes that are fixed up to a rotation.
"""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from recallscope.architectures.capabilities import Operators, key_tokens, value_tokens
from recallscope.interp.operators import gram_code, mean_diagonals, nearest_circuit
from recallscope.tasks.associative_recall import AssociativeRecall
from recallscope.theory.laws.paper import unified_law
from recallscope.theory.laws.sharing import recall_given_variances, sharing_codes, sharing_law

SILENT = 1e-9  # squared norm of all words together below which a class is not in a code at all


@dataclass(frozen=True)
class MeasuredCodes:
    """Mean squares of Gram entries off the diagonal; the diagonals have mean 1.

    Paper: the variances of App. E.1 (`eq:G-E-stats-ij`, `eq:G-E-tilde-stats-ij`), measured.
    """

    key_variance: float
    """v_N: entries (key, other key) of G_kq"""
    value_variance: float
    """v_D: entries (value, other value) of G_vv"""
    key_leak: float
    """entries (value, key) of G_kq: how much a stored value answers to a key"""
    value_leak: float
    """entries (value, key) of G_vv: how much a stored key raises the logit of a value"""
    key_spread: float
    """standard deviation of the diagonal of G_kq over keys"""
    value_spread: float
    """standard deviation of the diagonal of G_vv over values"""

    @property
    def leak(self) -> float:
        """Mean square of what a (value, key) neighbour adds to the logit of an unrelated value."""
        return self.key_leak * self.value_leak

    def recall(self, **question: Any) -> Any:
        """The law's recall for codes of these variances.   Paper: Thm 4.2 (`thm:prob-scaling-law`)."""
        return recall_given_variances(
            key_variance=self.key_variance, value_variance=self.value_variance, leak=self.leak, **question
        )


def measure_codes(ops: Operators) -> MeasuredCodes:
    """The variances a law needs, from the model's own operators."""
    k, v = key_tokens(ops.size), value_tokens(ops.size)
    value, match = mean_diagonals(ops)
    C = (ops.Pi_v_out[v] @ ops.encoded_values).double() / value
    A = (ops.hashed_keys.T @ ops.hashed_queries[:, k]).double() / match
    C_vv, A_kk = C[:, v], A[k]
    return MeasuredCodes(
        key_variance=_off_diagonal(A_kk),
        value_variance=_off_diagonal(C_vv),
        key_leak=float(A[v].square().mean()),
        value_leak=float(C[:, k].square().mean()),
        key_spread=float(A_kk.diagonal().std()),
        value_spread=float(C_vv.diagonal().std()),
    )


def _off_diagonal(gram: Float[Tensor, "n n"]) -> float:
    n = len(gram)
    return float((gram.square().sum() - gram.diagonal().square().sum()) / (n * (n - 1)))


@dataclass(frozen=True)
class VarianceCheck:
    """A measured variance beside what three stories predict for it."""

    measured: float
    random: float
    """random codes: one over the dimension.   Paper: App. E.1 (`eq:G-E-stats-ij`)."""
    welch: float
    """tight frames that have the dimension to themselves: the Welch bound"""
    sharing: float
    """tight frames, keys and values sharing the dimensions (`theory.sharing`)"""

    @property
    def nearest(self) -> str:
        """The story whose number is nearest."""
        stories = {"random": self.random, "welch": self.welch, "sharing": self.sharing}
        return min(stories, key=lambda name: abs(stories[name] - self.measured))


def check_variances(
    codes: MeasuredCodes, task: AssociativeRecall, *, embed_dim: int, state_dim: int
) -> tuple[VarianceCheck, VarianceCheck]:
    """Of keys and of values: which law does the model obey?

    Paper: Rem F.3 (`app-rem:key-value-selectivity`) expects 1/N and 1/D.
    Departs: trained codes are tight frames, below 1/N, and pay for sharing D dimensions.
    """
    V, D, N = task.vocab_size, embed_dim, state_dim
    predicted = sharing_codes(**law_question(task), embed_dim=D, state_dim=N)
    return (
        VarianceCheck(codes.key_variance, 1 / N, welch_variance(N, V // 2), float(predicted.key_variance)),
        VarianceCheck(codes.value_variance, 1 / D, welch_variance(D, V // 2), float(predicted.value_variance)),
    )


def law_question(task: AssociativeRecall) -> dict[str, Any]:
    """What the recall laws ask about a task: its sizes, and whether one fact is asked at once or all in a while."""
    at_once, once = task.length == task.context_length + 1, task.key_repeats == 1
    return {
        "vocab_size": task.vocab_size,
        "num_facts": task.num_facts,
        "task": "ar" if at_once else "mqar",
        "length": task.length if once and not at_once else None,
    }


@dataclass(frozen=True)
class LawScores:
    """Recall by three roads."""

    measured_variances: float
    """from the variances measured in this model"""
    trained_sharing: float
    """from those predicted for trained models"""
    unified: float
    """as printed.   Paper: Rem 4.3 (`rem:practical-scaling-law`)."""


def law_predictions(codes: MeasuredCodes, task: AssociativeRecall, *, embed_dim: int, state_dim: int) -> LawScores:
    """Recall of one linear layer as the laws have it.   Paper: Rem 4.3 (`rem:practical-scaling-law`).

    Holds for: one layer with one head; every key written once.
    """
    question, dims = law_question(task), {"embed_dim": embed_dim, "state_dim": state_dim}
    return LawScores(
        measured_variances=float(codes.recall(**question)),
        trained_sharing=float(sharing_law(**question, **dims)),
        unified=float(unified_law(**question, **dims)),
    )


def welch_variance(dim: int, count: int) -> float:
    """Least mean square of the inner products of `count` unit vectors in R^dim, reached by tight frames."""
    return max(0.0, (count - dim) / (dim * (count - 1)))


@dataclass(frozen=True)
class ClassGeometry:
    """How the keys and the values of one code lie to each other."""

    key_dim: float
    """effective dimension of the keys, (Σλ)² / Σλ²"""
    value_dim: float
    """effective dimension of the values"""
    norm_ratio: float
    """root mean square norm of keys over that of values"""
    angles: tuple[float, ...]
    """principal angles in degrees between the leading directions of keys and of values, as many as their dimensions"""
    overlap: float
    """mean squared cosine of these angles: 0 if the subspaces are orthogonal"""
    chance: float
    """what the overlap of random subspaces of these dimensions would be"""


def class_geometry(code: Float[Tensor, "dim V"]) -> ClassGeometry:
    """Principal angles and effective dimensions of keys and values in a code.

    Paper: Rem F.3 (`app-rem:key-value-selectivity`), where both subspaces are taken to be orthogonal.
    """
    key_dim, keys, key_norm = _leading(code[:, key_tokens(code.shape[1])].double())
    value_dim, values, value_norm = _leading(code[:, value_tokens(code.shape[1])].double())
    cosines = torch.linalg.svdvals(keys.T @ values).clamp(max=1)
    return ClassGeometry(
        key_dim=key_dim,
        value_dim=value_dim,
        norm_ratio=key_norm / value_norm if value_norm > 0 else float("inf"),
        angles=tuple(float(angle) for angle in torch.rad2deg(torch.arccos(cosines))),
        overlap=float(cosines.square().mean()) if len(cosines) else 0.0,
        chance=max(keys.shape[1], values.shape[1]) / code.shape[0],
    )


def _leading(words: Float[Tensor, "dim n"]) -> tuple[float, Float[Tensor, "dim r"], float]:
    """Effective dimension of some words, that many leading directions, and their root mean square norm."""
    directions, singular, _ = torch.linalg.svd(words, full_matrices=False)
    energy = singular.square()
    if not float(energy.sum()) > SILENT:
        return 0.0, directions[:, :0], 0.0
    dim = float(energy.sum().square() / energy.square().sum())
    return dim, directions[:, : max(1, round(dim))], float((energy.sum() / words.shape[1]).sqrt())


@dataclass(frozen=True)
class Selectivity:
    """Keys and values in E and in Ẽ, and what of the values lies where the hash looks."""

    embedding: ClassGeometry
    """in E, from G_vv"""
    hashed: ClassGeometry
    """in Ẽ = F E, from G_kq"""
    value_share: float
    """y, part of the values' squared norm inside the directions that F reads: 0 would be perfect selectivity"""


def measure_selectivity(ops: Operators, *, embed_dim: int, state_dim: int) -> Selectivity:
    """Are key and value subspaces orthogonal?

    Paper: Rem F.3 (`app-rem:key-value-selectivity`).
    Departs: they need not be. A (value, key) neighbour is harmless if either its value does not answer to keys (Ẽ) or
        its key does not raise values (E); trained models use short keys for the second and hardly the first.
    """
    circuit = nearest_circuit(ops, embed_dim=embed_dim, state_dim=state_dim)
    _, match = mean_diagonals(ops)
    E_tilde = gram_code(ops.hashed_keys / match, ops.hashed_queries, dim=state_dim)
    values = circuit.E[:, value_tokens(ops.size)].double()
    _, singular, rows = torch.linalg.svd(circuit.F.double(), full_matrices=False)
    read = rows[singular > 1e-6 * singular.max()]
    return Selectivity(
        embedding=class_geometry(circuit.E),
        hashed=class_geometry(E_tilde),
        value_share=float((read @ values).square().sum() / values.square().sum()),
    )

"""Code words and hashes: the matrices E and F that circuits are made of, drawn from a generator the caller owns."""

import torch
from jaxtyping import Float
from torch import Tensor


def sphere_code(dim: int, count: int, generator: torch.Generator) -> Float[Tensor, "dim count"]:
    """Columns uniform on the unit sphere.   Paper: E of App. E.1 (`app-subsec:designed-weights`)."""
    gaussian = torch.randn(dim, count, generator=generator, dtype=torch.float64)
    return (gaussian / gaussian.norm(dim=0)).float()


def orthonormal_rows(count: int, dim: int, generator: torch.Generator) -> Float[Tensor, "count dim"]:
    """Rows of a random rotation: an orthonormal basis of a uniformly random `count`-dimensional subspace of R^dim.

    Paper: U of App. E.1 (`app-subsec:designed-weights`).
    Departs: the print takes `Q[:N]` and speaks of the first N columns; rows of Qᵀ are meant, and are as good.
    """
    if count > dim:
        raise ValueError(
            f"{count} orthonormal rows do not fit into R^{dim}: the designed hash F takes N = {count} of them from "
            f"R^D, D = {dim} (App. E.1). Use state_dim <= {dim}, or train the model instead of designing it."
        )
    Q, upper = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64))
    return (Q * upper.diagonal().sign())[:, :count].T.float().contiguous()  # signs make Q uniform


def hash_matrix(state_dim: int, embed_dim: int, generator: torch.Generator) -> Float[Tensor, "N D"]:
    """F = sqrt(D/N) U: scaled so that |F e|² is 1 on average for unit e.

    Paper: App. E.1 (`app-subsec:designed-weights`), where the scale is called a.
    """
    return (embed_dim / state_dim) ** 0.5 * orthonormal_rows(state_dim, embed_dim, generator)


def tight_frame(dim: int, count: int, generator: torch.Generator, *, rounds: int = 500) -> Float[Tensor, "dim count"]:
    """`count` unit vectors in R^dim with E Eᵀ = (count/dim) I: the least mean-square correlation there is (Welch).

    From a random code by alternating projections: make the rows orthogonal, make the columns unit, and again.
    """
    if count < dim:
        raise ValueError(
            f"a tight frame of R^{dim} needs at least {dim} vectors, not {count}. Use a smaller dimension."
        )
    E = sphere_code(dim, count, generator).double()
    for _ in range(rounds):
        left, _, right = torch.linalg.svd(E, full_matrices=False)
        E = left @ right
        E = E / E.norm(dim=0)
        if torch.dist(E @ E.T, torch.eye(dim, dtype=E.dtype) * count / dim) < 1e-9 * count:
            break
    return E.float()


def distortion(E: Float[Tensor, "dim count"]) -> float:
    """Largest |<e_i, e_j> - delta_ij|: the epsilon this code really has.   Paper: Lem C.1 (`app-lem:jl`)."""
    gram = E.T @ E
    return float((gram - torch.eye(gram.shape[0], dtype=gram.dtype, device=gram.device)).abs().max())


def jl_pair(
    vocab_size: int, embed_dim: int, state_dim: int, generator: torch.Generator
) -> tuple[Float[Tensor, "D V"], Float[Tensor, "N D"]]:
    """Gaussian E with entries N(0, 1/D) and F with N(0, 1/N): the maps the proofs draw.

    Paper: Lem C.1 (`app-lem:jl`), Lem C.3 (`app-lem:jl-consecutive`).
    """
    E = torch.randn(embed_dim, vocab_size, generator=generator) / embed_dim**0.5
    F = torch.randn(state_dim, embed_dim, generator=generator) / state_dim**0.5
    return E, F

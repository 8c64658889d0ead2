"""Every random stream of a run, derived from its spec and seed; no two runs and no two purposes share one."""

import hashlib
from typing import Literal

import torch

from recallscope.specs import RunSpec

Stream = Literal["weights", "batches", "validation", "test", "rehearsal"]


def stream(run: RunSpec, purpose: Stream, device: torch.device | str = "cpu") -> torch.Generator:
    """A fresh generator for one purpose of one run: equal run, equal purpose, equal numbers."""
    return torch.Generator(device).manual_seed(_seed(f"{run.content_hash()}/{purpose}"))


def noise_seed(run: str, step: int) -> int:
    """Seed of what a model itself draws in one step of a run, such as dropout."""
    return _seed(f"{run}/noise/{step}")


def _seed(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1

"""Every random stream of a run, derived from its spec and seed; no two runs and no two purposes share one."""

import hashlib
from typing import Literal

import torch

from recallscope.specs import RunSpec

Stream = Literal["weights", "batches", "validation", "test"]


def stream(run: RunSpec, purpose: Stream, device: torch.device | str = "cpu") -> torch.Generator:
    """A fresh generator for one purpose of one run: equal run, equal purpose, equal numbers."""
    digest = hashlib.sha256(f"{run.content_hash()}/{purpose}".encode()).digest()
    return torch.Generator(device).manual_seed(int.from_bytes(digest[:8], "big") >> 1)

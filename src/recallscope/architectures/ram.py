"""Memory: what a model needs, found without building it, and what the machine has."""

import contextlib
import os
from pathlib import Path

import torch

from recallscope.specs import ModelSpec

CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container


class NotEnoughMemoryError(ValueError):
    """More memory is needed than the machine has; the message gives both numbers."""


def blank_tensors(spec: ModelSpec, vocab_size: int) -> dict[str, torch.Tensor]:
    """A model's tensors on torch's "meta" device, where they have shapes and nothing else; none if it cannot be built
    so, as its code does more.
    """
    try:
        with torch.device("meta"):
            return dict(spec.blank_model(vocab_size).state_dict())
    except Exception:  # the code of others may read what it has just drawn
        return {}


def weight_bytes(spec: ModelSpec, vocab_size: int) -> int:
    """Bytes of a model's weights, found without building it; 0 if that cannot be done."""
    return sum(tensor.numel() * tensor.element_size() for tensor in blank_tensors(spec, vocab_size).values())


def machine_bytes(device: torch.device | str = "cpu") -> int:
    """Memory of a device: of a GPU all of it, of this machine what the process may have of it."""
    place = torch.device(device)
    if place.type == "cuda":
        return int(torch.cuda.get_device_properties(place).total_memory)
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no such group, or "max"
            limits.append(int(Path(path).read_text()))
    return min(limits)


def require_memory(needed: int, what: str, way_out: str, device: torch.device | str = "cpu") -> None:
    """Raise a NotEnoughMemoryError if a device has less than is needed at the least."""
    there = machine_bytes(device)
    if needed > there:
        raise NotEnoughMemoryError(
            f"{what} needs at least {needed / 1e9:,.1f} GB, and there are {there / 1e9:,.1f} GB here. {way_out}"
        )

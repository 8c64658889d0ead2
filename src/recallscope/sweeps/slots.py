"""Where workers may run on this machine: cores, or several slots on each GPU."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Slot:
    """A place for one worker: its torch device, and what its environment says of GPUs."""

    device: str = "cpu"
    environment: dict[str, str] = field(default_factory=dict)


def cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpus() -> list[str]:
    """GPUs this process may use, as CUDA_VISIBLE_DEVICES spells them; found without loading torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name.strip() not in ("", "-1")]
    found = Path("/proc/driver/nvidia/gpus")
    return [str(index) for index in range(len(list(found.iterdir())))] if found.is_dir() else []


def local_slots(workers: int | None = None, slots_per_gpu: int | None = None, device: str = "auto") -> list[Slot]:
    """Slots for the local engine: on the GPUs if there are any and `device` allows, else one per core.

    `workers` sets how many there are; on GPUs it is a limit, as `slots_per_gpu` sets the number.
    """
    for name, value in (("workers", workers), ("slots_per_gpu", slots_per_gpu)):
        if value is not None and not 1 <= value <= 1024:
            raise ValueError(f"{name}={value} is outside 1..1024.")
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device={device!r} is none of auto, cpu and cuda.")
    found = gpus() if device != "cpu" else []
    if device == "cuda" and not found:
        raise ValueError("device=cuda, and this machine shows no GPU. Use --device cpu.")
    if not found:
        if slots_per_gpu is not None:
            raise ValueError("slots_per_gpu is for GPUs, and this machine shows none. Use --workers.")
        return [Slot()] * (workers or cores())
    each = slots_per_gpu or 1
    # round robin over the GPUs, so that a limit on the workers still uses all of them
    places = [Slot("cuda:0", {"CUDA_VISIBLE_DEVICES": name}) for _ in range(each) for name in found]
    return places[: workers or len(places)]

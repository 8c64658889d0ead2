"""Our C kernels, opened with ctypes, and how tensors are handed to them.

Where they cannot be built (`kernel_library.py`), `library()` is None and callers use torch instead; that is said once
in the log.
"""

import ctypes
import logging
import os
import subprocess
from functools import cache
from typing import Any

import torch
from torch import Tensor

from recallscope.ops.kernel_library import open_library

FORM_VARIABLE = "RECALLSCOPE_SCAN"  # may choose another form of the selective scan

logger = logging.getLogger(__name__)


def library() -> ctypes.CDLL | None:
    """The kernels, or None if they cannot be built here; why is said in the log, once."""
    return _opened()[0]


def backend_name(device: torch.device | str) -> str:
    """What a record says of the kernels: `compiled` and the digest of the library, or `torch` and why."""
    kind, scan = torch.device(device).type, os.environ.get(FORM_VARIABLE)
    who = _opened()[1] if kind == "cpu" else f"torch (on {kind})"
    return f"{who}, {FORM_VARIABLE}={scan}" if scan else who


@cache
def _opened() -> tuple[ctypes.CDLL | None, str]:
    try:
        kernels, digest = open_library()
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        logger.warning("compiled kernels are not available, torch computes instead: %s", error)
        return None, f"torch ({str(error).partition('. ')[0]})"
    for name in ("scan_arguments_size", "conv_arguments_size", "padding_size"):
        getattr(kernels, name).restype = ctypes.c_int64
    return kernels, f"compiled {digest[:12]}"


def call(name: str, arguments: ctypes.Structure, dtype: torch.dtype) -> None:
    """Run a kernel in the given precision."""
    kernels = library()
    assert kernels is not None
    fault = getattr(kernels, f"{name}_{'f32' if dtype == torch.float32 else 'f64'}")(ctypes.byref(arguments))
    if fault == 1:
        raise MemoryError(f"{name}: no memory for its scratch space. Use a smaller batch.")
    if fault == 2:
        raise IndexError(f"{name}: a position or token id points outside the sequence or the table.")


def fits(*tensors: Tensor | None) -> bool:
    """May the kernels be handed these? All on the CPU, all float32 or all float64."""
    there = [tensor for tensor in tensors if tensor is not None]
    return there[0].dtype in (torch.float32, torch.float64) and all(
        tensor.device.type == "cpu" and tensor.dtype == there[0].dtype for tensor in there
    )


def fields(sizes: str, pointers: str) -> list[tuple[str, Any]]:
    """Fields of a structure of csrc/arguments.h that has sizes first and pointers after them."""
    return [(name, ctypes.c_int64) for name in sizes.split()] + [(name, ctypes.c_void_p) for name in pointers.split()]


def hand_over(arguments: ctypes.Structure, **tensors: Tensor | None) -> list[Tensor]:
    """Write addresses of the tensors, made dense, into the arguments; returns what must outlive the call."""
    alive = {name: tensor.contiguous() for name, tensor in tensors.items() if tensor is not None}
    for name, tensor in alive.items():
        setattr(arguments, name, address(tensor))
    return list(alive.values())


def address(tensor: Tensor | None) -> int | None:
    """Where its numbers are; NULL for what is absent."""
    return None if tensor is None else tensor.data_ptr()


def threads_for(work: int) -> int:
    """As many as torch uses; one where starting a second costs more than it saves."""
    return 1 if work < 2**17 else torch.get_num_threads()

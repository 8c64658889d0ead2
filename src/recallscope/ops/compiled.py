"""Our C kernels, opened with ctypes, and how tensors are handed to them.

Where they cannot be built (`kernel_library.py`), `library()` is None and callers use torch instead; that is said once
in the log.
"""

import ctypes
import logging
import os
import subprocess
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from recallscope.ops.kernel_library import open_library

FORM_VARIABLE = "RECALLSCOPE_SCAN"  # may choose another form of the selective scan

LIBRARY = torch.library.Library("recallscope", "DEF")
logger = logging.getLogger(__name__)


def library() -> ctypes.CDLL | None:
    """The kernels, or None if they cannot be built here; why is said in the log, once."""
    return _opened()[0]


def available() -> bool:
    """Whether the kernels can be used here; torch.compile takes the answer as a constant."""
    return library() is not None


# What torch.compiler.assume_constant_result does; calling it would import torch._dynamo, a second in every process.
available._dynamo_marked_constant = True  # type: ignore[attr-defined]


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


def operator(
    schema: str,
    compute: Callable[..., Any],
    fake: Callable[..., Any],
    save: Callable[..., None] | None = None,
    gradients: Callable[..., Any] | None = None,
) -> None:
    """Make a kernel an operator, `torch.ops.recallscope.NAME`, which torch.compile and torch.export keep whole.

    **Arguments:**

    - `compute`: the operator on a CPU.
    - `fake`: empty tensors of the shapes that `compute` returns.
    - `save`, `gradients`: what `torch.library.register_autograd` takes as `setup_context` and `backward`.

    Not `torch.library.custom_op`, which adds checks at every call.
    """
    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, compute, "CPU")
    torch.library.register_fake(f"recallscope::{name}", fake, lib=LIBRARY)
    if gradients is not None:
        torch.library.register_autograd(f"recallscope::{name}", gradients, setup_context=save, lib=LIBRARY)


def keeps_states(*tensors: Tensor | None) -> bool:
    """Whether a scan will be asked for gradients, and so keeps the states it passes."""
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def fits(*tensors: Tensor | None) -> bool:
    """May the kernels be handed these? All on the CPU, all float32 or all float64."""
    there = [tensor for tensor in tensors if tensor is not None]
    dtype = there[0].dtype
    return dtype in (torch.float32, torch.float64) and all(t.dtype == dtype and t.is_cpu for t in there)


def fields(sizes: str, pointers: str) -> list[tuple[str, Any]]:
    """Fields of a structure of csrc/arguments.h that has sizes first and pointers after them."""
    return [(name, ctypes.c_int64) for name in sizes.split()] + [(name, ctypes.c_void_p) for name in pointers.split()]


def hand_over(arguments: ctypes.Structure, **tensors: Tensor | None) -> list[Tensor]:
    """Write addresses of the tensors, made dense, into the arguments; returns what must outlive the call."""
    alive = []
    for name, tensor in tensors.items():
        if tensor is not None:
            alive.append(dense := tensor.contiguous())
            setattr(arguments, name, dense.data_ptr())
    return alive


def address(tensor: Tensor | None) -> int | None:
    """Where its numbers are; NULL for what is absent."""
    return None if tensor is None else tensor.data_ptr()


def threads_for(work: int) -> int:
    """As many as torch uses; one where starting a second costs more than it saves."""
    return 1 if work < 2**17 else torch.get_num_threads()

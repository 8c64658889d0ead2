"""Our C kernels: built on first use by the system's compiler, kept in a cache, opened with ctypes.

No torch headers, no build step at installation: the source is a few hundred lines (`csrc/`) and compiles in a
second or two. Where there is no compiler, `library()` is None and callers use torch instead; that is said once
in the log. `RECALLSCOPE_CACHE` (else `XDG_CACHE_HOME`, else `~/.cache`) says where the result is kept.
"""

import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

SOURCE = Path(__file__).parent / "csrc"
COMPILERS = ("cc", "gcc", "clang")
COMMON_FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math")
CPU_FLAGS = (
    ("-march=native", "-mprefer-vector-width=512", "-ffp-contract=fast"),
    ("-march=native", "-ffp-contract=fast"),
    ("-ffp-contract=fast",),
    (),
)  # the first set the compiler takes; never -ffast-math, which breaks our exp
COMPILE_SECONDS = 120

logger = logging.getLogger(__name__)


@cache
def library() -> ctypes.CDLL | None:
    """The kernels, or None if they cannot be built here; why is said in the log, once."""
    try:
        return _open(_built())
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        logger.warning("compiled kernels are not available, torch computes instead: %s", error)
        return None


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


def cache_folder() -> Path:
    """Where built kernels are kept."""
    root = os.environ.get("RECALLSCOPE_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "recallscope"


def _open(path: Path) -> ctypes.CDLL:
    kernels = ctypes.CDLL(str(path))
    for name in ("scan_arguments_size", "conv_arguments_size", "padding_size"):
        getattr(kernels, name).restype = ctypes.c_int64
    return kernels


def _built() -> Path:
    """The library of this source for this compiler and this CPU, built now if the cache lacks it."""
    compiler = _compiler()
    name = f"kernels-{_fingerprint(compiler)}.so"
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="recallscope-"))  # read-only home: build for this process alone
    path = folder / name
    if not (path.is_file() and _ours(path)):
        _compile(compiler, path)
    return path


def _compile(compiler: list[str], path: Path) -> None:
    """Compile beside, then rename over: of two processes building at once, the last one wins, and both are right."""
    said = ""
    for cpu_flags in CPU_FLAGS:
        handle, beside = tempfile.mkstemp(prefix=".building-", suffix=".so", dir=path.parent)
        os.close(handle)
        try:
            command = [*compiler, *COMMON_FLAGS, *cpu_flags, "-o", beside, str(SOURCE / "kernels.c"), "-lpthread"]
            done = subprocess.run(  # noqa: S603 (the user's own compiler)
                command, capture_output=True, text=True, check=False, timeout=COMPILE_SECONDS
            )
            if done.returncode == 0:
                os.chmod(beside, 0o700)
                os.replace(beside, path)
                return
            said = done.stderr.strip()
        finally:
            Path(beside).unlink(missing_ok=True)
    raise RuntimeError(f"{compiler[0]} could not compile {SOURCE / 'kernels.c'}: {said[:500]}")


def _compiler() -> list[str]:
    """$CC if set, else the first of cc, gcc and clang."""
    asked = shlex.split(os.environ.get("CC", ""))
    for name in [asked[0]] if asked else COMPILERS:
        found = shutil.which(name)
        if found:
            return [found, *asked[1:]]
    raise RuntimeError(
        f"no C compiler: {asked[0] if asked else ', '.join(COMPILERS)} not found on PATH. Install gcc or clang "
        f"for a scan several times as fast."
    )


def _fingerprint(compiler: list[str]) -> str:
    """Changes with the source, the compiler, the flags and the CPU: a home directory may be shared by machines."""
    version = subprocess.run(  # noqa: S603 (the user's own compiler)
        [*compiler, "--version"], capture_output=True, check=False, timeout=COMPILE_SECONDS
    ).stdout
    parts = [path.name.encode() + b"\0" + path.read_bytes() for path in sorted(SOURCE.glob("*.[ch]"))]
    parts += [version, repr((compiler, COMMON_FLAGS, CPU_FLAGS)).encode(), _cpu()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:24]


def _cpu() -> bytes:
    """What -march=native would look at."""
    told = platform.machine() + platform.processor() + platform.system()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    kept = [line for line in lines if line.split(":")[0].strip() in ("model name", "flags", "Features", "CPU part")]
    return "\n".join([told, *kept]).encode()


def _ours(path: Path) -> bool:
    """Was it put there by this user (or root), where nobody else may write? A library is code: we run no stranger's."""
    if not hasattr(os, "getuid"):
        return True
    found = path.stat()
    return found.st_uid in (os.getuid(), 0) and not found.st_mode & 0o022

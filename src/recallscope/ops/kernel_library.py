"""Build our C kernels with the system's compiler, keep the library in a cache, and check it before it is opened.

No torch headers, no build step at installation: the source is a few hundred lines (`csrc/`) and compiles in some five
seconds of one core, once per machine: of several processes one builds, and the others wait. `RECALLSCOPE_CACHE` (else
`XDG_CACHE_HOME`, else `~/.cache`) says where the result is kept; where that folder cannot be written or is not safe, a
folder of this user among the system's temporary files is used.
`RECALLSCOPE_CFLAGS` is added to the compiler's flags, of which the last counts: `-march=x86-64` builds kernels for any
x86 CPU instead of this one. Each choice of flags has a library of its own.

A library's name ends with the SHA-256 of its bytes: one that was cut short or changed is not opened, which could end
the process, but deleted and built again. And a library is code: we open none that another user could have put there,
no link, and on Linux the very file whose bytes were checked.
"""

import ctypes
import fcntl
import hashlib
import logging
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from recallscope.atomic import flush_folder

SOURCE = Path(__file__).parent / "csrc"
COMPILERS = ("cc", "gcc", "clang")
COMMON_FLAGS = ("-std=c11", "-O3", "-fPIC", "-shared", "-fopenmp-simd", "-fno-math-errno", "-fno-trapping-math")
CPU_FLAGS = (
    ("-march=native", "-mprefer-vector-width=512", "-ffp-contract=fast"),
    ("-march=native", "-ffp-contract=fast"),
    ("-ffp-contract=fast",),
    (),
)  # the first set the compiler takes; never -ffast-math, which breaks our exp
FLAGS_VARIABLE = "RECALLSCOPE_CFLAGS"
COMPILE_SECONDS = 120
BUILDING = ".building-"  # how the name of a library begins while it is being written
STALE_SECONDS = 3600  # after which its builder must have been killed
OTHERS_MAY_WRITE = 0o022

logger = logging.getLogger(__name__)


def open_library() -> tuple[ctypes.CDLL, str]:
    """The kernels and the SHA-256 of their library, from the first folder that has them or in which they can be built.

    Raises OSError, RuntimeError, ValueError or subprocess.SubprocessError, with the reason, where there are none.
    """
    compiler = find_compiler()
    name = f"kernels-{_fingerprint(compiler)}"
    refused = []
    for folder in (cache_folder(), temporary_folder()):
        try:
            if found := _find(folder, name):
                return found
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _check_folder(folder)
            with _alone(folder):
                return _find(folder, name) or _opened(_compile(compiler, folder, name))
        except OSError as error:  # read-only, full, not ours, or mounted so that nothing in it may run
            logger.info("kernels are not kept in %s: %s", folder, error)
            refused.append(f"{folder}: {error}")
    raise OSError(
        f"no folder for the compiled library. {'; '.join(refused)}. Set RECALLSCOPE_CACHE to your own folder."
    )


def cache_folder() -> Path:
    """Where built kernels are kept."""
    root = os.environ.get("RECALLSCOPE_CACHE") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "recallscope"


def temporary_folder() -> Path:
    """Where they are kept if not there: the same folder for all processes of a user, until the system clears it."""
    return Path(tempfile.gettempdir()) / f"recallscope-{os.getuid() if hasattr(os, 'getuid') else 'kernels'}"


def _find(folder: Path, name: str) -> tuple[ctypes.CDLL, str] | None:
    """A sound library of this name, opened, and its SHA-256; those that are not sound are deleted."""
    if not folder.exists():
        return None
    _check_folder(folder)
    for path in sorted(folder.glob(f"{name}-*.so")):
        try:
            return _opened(path)
        except (PermissionError, UnsoundError) as error:
            logger.warning("%s It is built again.", error)
        path.unlink(missing_ok=True)
    return None


class UnsoundError(RuntimeError):
    """A library is not what its name says."""


def _opened(path: Path) -> tuple[ctypes.CDLL, str]:
    """The library and its SHA-256, which its name must end with. No link is followed, and what is checked is opened."""
    if path.is_symlink():
        raise UnsoundError(f"{path} is a link.")
    descriptor = os.open(
        path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0)
    )  # kept open: dlopen tells files by their names
    _check_owner(path, os.fstat(descriptor))
    with open(descriptor, "rb", closefd=False) as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    if digest != path.stem.rpartition("-")[2]:
        os.close(descriptor)
        raise UnsoundError(f"{path} is damaged: its SHA-256 begins with {digest[:12]}.")
    checked = Path(f"/proc/self/fd/{descriptor}")
    return ctypes.CDLL(str(checked if checked.exists() else path)), digest


def _check_folder(folder: Path) -> None:
    """Refuse a folder that another user may write to or replace: itself, its target, and all above."""
    real = folder.resolve()
    _check_owner(real, real.stat())
    for above in {*real.parents, *folder.absolute().parents}:
        found = above.stat()
        if not found.st_mode & stat.S_ISVTX:  # as /tmp has: only its owner may replace what is in it
            _check_owner(above, found)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One builder per folder: the others wait, and find what it has built. A killed one holds up nobody."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks: each builds
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _check_owner(path: Path, found: os.stat_result) -> None:
    """Refuse what another user than this one or root owns or may write to."""
    if not hasattr(os, "getuid"):
        return
    if found.st_uid not in (os.getuid(), 0):
        raise PermissionError(f"{path} belongs to user {found.st_uid}, who could have it run anything here.")
    if found.st_mode & OTHERS_MAY_WRITE:
        raise PermissionError(
            f"{path} has mode {found.st_mode & 0o777:o}: others may write to it, and could have it run anything here. "
            f"chmod go-w {path} allows it again."
        )


def _compile(compiler: list[str], folder: Path, name: str) -> Path:
    """Compile beside, flush, then rename: two processes that build at once both end with a whole library."""
    if sys.stderr.isatty():
        print("recallscope: compiling kernels, once per machine ...", file=sys.stderr)
    message = ""
    with _draft(folder) as draft:
        for cpu_flags in CPU_FLAGS:
            flags = (*COMMON_FLAGS, *cpu_flags, *_flags_asked_for())
            command = [*compiler, *flags, "-o", str(draft), str(SOURCE / "kernels.c"), "-lpthread"]
            done = subprocess.run(  # noqa: S603 (the user's own compiler)
                command, capture_output=True, text=True, check=False, timeout=COMPILE_SECONDS
            )
            if done.returncode == 0:
                return _keep(draft, name)
            message = done.stderr.strip()
    raise RuntimeError(f"{compiler[0]} could not compile {SOURCE / 'kernels.c'}: {message[:500]}")


@contextmanager
def _draft(folder: Path) -> Iterator[Path]:
    """A file to build in, gone afterwards; so are those that killed processes left behind."""
    for left in folder.glob(f"{BUILDING}*"):
        with suppress(OSError):  # another process may have been quicker
            if time.time() - left.stat().st_mtime > STALE_SECONDS:
                left.unlink()
    handle, draft = tempfile.mkstemp(prefix=BUILDING, suffix=".so", dir=folder)
    os.close(handle)
    try:
        yield Path(draft)
    finally:
        Path(draft).unlink(missing_ok=True)


def _keep(draft: Path, name: str) -> Path:
    """Give a built library its name, which is that of its bytes; flushed to the disk first."""
    draft.chmod(0o700)
    with open(draft, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
        os.fsync(file.fileno())
    path = draft.with_name(f"{name}-{digest}.so")
    os.replace(draft, path)
    flush_folder(path.parent)
    return path


def find_compiler() -> list[str]:
    """$CC if set, else the first of cc, gcc and clang."""
    asked = _words_in("CC")
    for name in [asked[0]] if asked else COMPILERS:
        found = shutil.which(name)
        if found:
            return [found, *asked[1:]]
    raise RuntimeError(
        f"no C compiler: {asked[0] if asked else ', '.join(COMPILERS)} not found on PATH. Install gcc or clang "
        f"for a scan several times as fast."
    )


def _flags_asked_for() -> list[str]:
    return _words_in(FLAGS_VARIABLE)


def _words_in(variable: str) -> list[str]:
    """The words of an environment variable, quoted as in a shell."""
    try:
        return shlex.split(os.environ.get(variable, ""))
    except ValueError as error:
        raise ValueError(f"{variable}={os.environ[variable]!r} cannot be read: {error}") from error


def _fingerprint(compiler: list[str]) -> str:
    """Changes with the source, the compiler, the flags and the CPU: a home directory may be shared by machines."""
    version = subprocess.run(  # noqa: S603 (the user's own compiler)
        [*compiler, "--version"], capture_output=True, check=False, timeout=COMPILE_SECONDS
    ).stdout
    parts = [path.name.encode() + b"\0" + path.read_bytes() for path in sorted(SOURCE.glob("*.[ch]"))]
    parts += [version, repr((compiler, COMMON_FLAGS, CPU_FLAGS, _flags_asked_for())).encode(), _cpu()]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:24]


def _cpu() -> bytes:
    """What -march=native would look at."""
    machine_name = platform.machine() + platform.processor() + platform.system()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    kept = [line for line in lines if line.split(":")[0].strip() in ("model name", "flags", "Features", "CPU part")]
    return "\n".join([machine_name, *kept]).encode()

"""Files that are whole or not there: written beside, flushed, renamed over. All records and checkpoints rest on it.

A safetensors file can carry a digest of itself in its header, so that a flipped bit is noticed when it is read.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path

TEMPORARY = ".tmp"  # how a file's name ends while it is being written; a leftover one is half a file

NO_DIGEST = "0" * 64  # stands in a header where its digest will be, or was
STORAGE_FAULTS = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EFBIG, errno.ESTALE))
PLACE_FAULTS = frozenset((errno.EACCES, errno.EPERM, errno.ELOOP))  # of a file of ours; a user's code may meet its own

between_writes = threading.Lock()  # whoever holds it may end the process without leaving half a file


def write_atomically(path: Path, data: bytes) -> None:
    """Write beside, flush to the disk, rename over, flush the folder.

    After a crash at any moment the path holds the old bytes or the new, never a mixture. The name beside is drawn at
    random, as process ids repeat between the hosts of a network file system.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}{TEMPORARY}")
    with between_writes:
        try:
            with open(draft, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        except OSError as error:
            with contextlib.suppress(OSError):  # a full disk should not be filled further by what it refused
                draft.unlink(missing_ok=True)
            error.filename = error.filename or str(path)
            raise
    flush_folder(path.parent)


def open_regular(path: Path | str, flags: int = os.O_RDONLY) -> int:
    """A descriptor of a file as it is named: a link is not followed, and a pipe in its place is not waited for."""
    if os.path.islink(path):  # O_NOFOLLOW says so, too, but in words that nobody understands
        raise link_error(path)
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "a folder, where a file should be", str(path))
    raise OSError(errno.ENXIO, "not a file", str(path))


def link_error(path: Path | str) -> OSError:
    """What is raised about a link inside a store or in the place of a file of ours."""
    return OSError(errno.ELOOP, "a link, and links in a store are not followed. Move it away", str(path))


def flush_folder(folder: Path) -> None:
    """Make the names of a folder last: without it a rename may be undone by a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_half_written(name: str) -> bool:
    """Whether a file of this name is what a killed `write_atomically` leaves behind."""
    return name.startswith(".") and name.endswith(TEMPORARY)


def is_storage_fault(error: BaseException | None, store: Path | None = None) -> bool:
    """Whether an error is the disk's: full, over quota, read-only or failing; or that a file of the store is forbidden.

    What was written is not to blame, and another try would end in the same way.
    """
    if not isinstance(error, OSError):
        return False
    ours = store is not None and error.filename is not None and Path(error.filename).is_relative_to(store)
    return error.errno in STORAGE_FAULTS or (ours and error.errno in PLACE_FAULTS)


def digest_of(data: bytes) -> str:
    """SHA-256, in hex."""
    return hashlib.sha256(data).hexdigest()


def sealed(data: bytes) -> bytes:
    """A file's bytes with their digest in place of the `NO_DIGEST` that its header has."""
    return data.replace(NO_DIGEST.encode(), digest_of(data).encode(), 1)


def seal_is_broken(data: bytes, header: Mapping[str, str]) -> bool:
    """Whether bytes with this header have changed since they were sealed. A format named `...-sealed` has a seal."""
    digest = header.get("digest")
    if digest is None:
        return str(header.get("format")).endswith("-sealed")
    return len(digest) != len(NO_DIGEST) or digest_of(data.replace(digest.encode(), NO_DIGEST.encode(), 1)) != digest

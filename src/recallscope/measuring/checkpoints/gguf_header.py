"""The header of a GGUF file, llama.cpp's format, read before any library opens the file.

Every length in it is held against the bytes that are left, so that a damaged or hostile file is a sentence, and neither
a long wait nor a full memory. Format: github.com/ggml-org/ggml, docs/gguf.md.
"""

import mmap
import struct
from collections import Counter
from dataclasses import dataclass
from math import prod
from pathlib import Path

MAGIC, VERSIONS = b"GGUF", (2, 3)
SCALARS = dict(enumerate(("B", "b", "H", "h", "I", "i", "f", "?"))) | {10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
MOST_DIMS = 4
ALIGNMENT = 32
Value = str | int | float | bool


@dataclass(frozen=True)
class GGUFHeader:
    """What a file says of itself."""

    fields: dict[str, Value]
    """numbers and texts; of an array its length"""
    tensors: int
    weights: int
    largest_dim: int
    formats: str
    """the tensors' formats, the commonest first"""

    @property
    def family(self) -> str:
        """llama.cpp's name of the architecture."""
        return str(self.fields.get("general.architecture", ""))

    def why_not(self) -> str | None:
        """Why no such model should be built: more layers or experts than the tensors can hold; None if it may be."""
        most = max(self.tensors, self.largest_dim)
        for name in ("block_count", "expert_count"):
            count = self.fields.get(f"{self.family}.{name}", 0)
            if not isinstance(count, int) or not 0 <= count <= most:
                return f"{self.family}.{name} is {count}, and it has {self.tensors} tensors"
        return None


def read_header(path: Path) -> GGUFHeader:
    """The header; ValueError says where the file breaks off, or what is wrong with it."""
    with path.open("rb") as file:
        if path.stat().st_size < len(MAGIC) + 20:
            raise ValueError("it is too short for a header")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _Reading(data).header()


class _Reading:
    """A place in the bytes of a file."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise ValueError(f"byte {self.at} announces {size} more, and the file has {len(self.data)} in all")
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, kind: str) -> int | float | bool:
        found: int | float | bool = struct.unpack(f"<{kind}", self.take(struct.calcsize(f"<{kind}")))[0]
        return found

    def whole(self, kind: str = "Q") -> int:
        return int(self.number(kind))

    def text(self) -> str:
        return self.take(self.whole()).decode("utf-8", errors="replace")

    def value(self) -> Value:
        """A field's value; an array is passed over, and gives its length."""
        kind = self.whole("I")
        if kind == STRING:
            return self.text()
        if kind != ARRAY:
            return self.number(_scalar(kind))
        kind, count = self.whole("I"), self.whole()
        if kind == STRING:
            for _ in range(count):
                self.take(self.whole())
        else:
            self.take(count * struct.calcsize(f"<{_scalar(kind)}"))
        return count

    def header(self) -> GGUFHeader:
        if self.take(len(MAGIC)) != MAGIC:
            raise ValueError("it does not begin with GGUF")
        version, num_tensors, num_fields = self.whole("I"), self.whole(), self.whole()
        if version not in VERSIONS:
            raise ValueError(f"its version is {version}, and 2 and 3 are known")
        fields: dict[str, Value] = {}
        for _ in range(num_fields):
            name = self.text()
            if name in fields:
                raise ValueError(f"its field {name[:80]!r} is there twice")
            fields[name] = self.value()
        tensors = [self.tensor() for _ in range(num_tensors)]
        alignment = fields.get("general.alignment", ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise ValueError(f"its alignment is {alignment}, which is no power of two")
        start = -(-self.at // alignment) * alignment
        for name, _, _, offset, size in tensors:
            if start + offset + size > len(self.data):
                raise ValueError(f"tensor {name[:80]!r} ends beyond the end of the file: is the download complete?")
        if start + sum(size for *_, size in tensors) > len(self.data) or len({name for name, *_ in tensors}) < len(
            tensors
        ):
            raise ValueError("several of its tensors share a name, or the same bytes")
        return GGUFHeader(
            fields,
            len(tensors),
            sum(prod(dims) for _, _, dims, *_ in tensors),
            max((dim for _, _, dims, *_ in tensors for dim in dims), default=0),
            ", ".join(kind for kind, _ in Counter(kind for _, kind, *_ in tensors).most_common()),
        )

    def tensor(self) -> tuple[str, str, list[int], int, int]:
        """Name, format, dimensions, offset and bytes."""
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        name, num_dims = self.text(), self.whole("I")
        if num_dims > MOST_DIMS:
            raise ValueError(f"tensor {name[:80]!r} has {num_dims} dimensions, and {MOST_DIMS} are the most")
        dims, number, offset = [self.whole() for _ in range(num_dims)], self.whole("I"), self.whole()
        try:
            kind = GGMLQuantizationType(number)
        except ValueError:
            raise ValueError(f"tensor {name[:80]!r} is of the format {number}, which is not known") from None
        block, size = GGML_QUANT_SIZES[kind]
        if prod(dims) % block:
            raise ValueError(f"tensor {name[:80]!r} of {prod(dims)} numbers does not fill blocks of {block}")
        return name, kind.name, dims, offset, prod(dims) // block * size


def _scalar(kind: int) -> str:
    if kind not in SCALARS:
        raise ValueError(f"it has a field of the type {kind}, which is not known")
    return SCALARS[kind]

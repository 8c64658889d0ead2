"""Packed records: many runs in one file, a line each, read-only. The first line is the store's marker and a count.

A packed file is a store by itself (x.jsonl), or the part of a store's folder named runs.jsonl. There a record in runs/
takes precedence over the line of the same run.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recallscope.records import MOST_BYTES, RecordError, read_facts

PACKED = "runs.jsonl"
FORMAT = "recallscope-store"
Stamp = tuple[int, int]  # of a file: its size in bytes and time in nanoseconds; of a line: its size and CRC-32
NO_STAMP: Stamp = (-1, -1)
_RUN = re.compile(rb'"run"\s*:\s*"([0-9a-f]{24})"')


@dataclass(frozen=True)
class Line:
    """One line of a packed file."""

    number: int
    text: bytes
    fault: str = ""  # why it cannot be a record, as far as that is known without reading it

    @property
    def stamp(self) -> Stamp:
        """Size and checksum."""
        return len(self.text), zlib.crc32(self.text)


class PackedRuns:
    """The lines of a packed file by run, read in one pass and again if the file changes; none if there is no file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read: tuple[Stamp, dict[str, Line]] = (NO_STAMP, {})

    def lines(self) -> Mapping[str, Line]:
        """All lines by the name of their run. Without a name, or with one that occurred before: as "line 17"."""
        stamp = self.stamp
        if stamp != self._read[0]:
            self._read = (stamp, {} if stamp == NO_STAMP else _lines(self.path))
        return self._read[1]

    @property
    def stamp(self) -> Stamp:
        """Size and time of the file."""
        try:
            status = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return NO_STAMP
        return status.st_size, status.st_mtime_ns

    def read(self, run: str) -> tuple[dict[str, Any] | None, Stamp]:
        """The record of a run and the stamp of its line; None if it is not here, RecordError if it is damaged."""
        line = self.lines().get(run)
        if line is None:
            return None, NO_STAMP
        if line.fault:
            raise RecordError(line.fault)
        facts = read_facts(line.text)
        if facts["run"] != run:
            raise RecordError(f"it is the record of run {facts['run']}, and its line begins with another")
        return facts, line.stamp

    def place(self, run: str) -> str:
        """Where the record of a run is, for messages."""
        return f"{self.path.name}, line {self.lines()[run].number}"


def packed_marker(text: bytes) -> dict[str, Any] | None:
    """The marker in the first line of a packed file; None if this is not one."""
    try:
        marker = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return marker if isinstance(marker, dict) and marker.get("format") == FORMAT else None


def packed_line(facts: Mapping[str, Any]) -> bytes:
    """A record or a marker as one line."""
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _lines(path: Path) -> dict[str, Line]:
    found, number, expected = dict[str, Line](), 0, 0
    with open(path, "rb") as file:
        while text := file.readline(MOST_BYTES):
            number += 1
            whole = len(text)
            while not text.endswith(b"\n") and (rest := file.readline(MOST_BYTES)):
                whole, text = whole + len(rest), rest
            if number == 1 and (marker := packed_marker(text)):
                expected = marker.get("runs", 0)
                continue
            if not text.strip():
                continue
            name, fault = f"line {number}", ""
            if whole > MOST_BYTES:
                text, fault = b"", f"{whole:,} bytes long, and a record has at most {MOST_BYTES:,}"
            elif match := _RUN.search(text):
                run = match[1].decode()
                if run in found:
                    fault = f"a second record of run {run}, which is in line {found[run].number} already"
                else:
                    name = run
            found[name] = Line(number, text, fault)
    if isinstance(expected, int) and len(found) < expected:
        missing = f"cut off: the first line announces {expected} records, and {len(found)} are here"
        found[f"line {number + 1}"] = Line(number + 1, b"", missing)
    return found

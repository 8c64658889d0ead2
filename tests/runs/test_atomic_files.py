"""A file is the old one or the new one, whatever happens in between."""

import os
import signal
import subprocess
import sys
import time

import pytest

from recallscope.atomic import is_half_written, write_atomically

WRITER = """
import sys
from pathlib import Path
from recallscope.atomic import write_atomically
path, letter = Path(sys.argv[1]), 0
while True:
    letter = (letter + 1) % 26
    write_atomically(path, bytes([97 + letter]) * 200_000)
"""


def test_a_writer_killed_at_any_moment_leaves_a_whole_file(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, b"a" * 200_000)
    for pause in (0.0, 0.002, 0.005, 0.011, 0.023):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
        time.sleep(0.4 + pause)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        data = path.read_bytes()
        assert len(data) == 200_000
        assert len(set(data)) == 1
    assert all(is_half_written(name) for name in os.listdir(tmp_path) if name != "file")


def test_a_refused_write_leaves_the_old_file_and_no_rubbish(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]

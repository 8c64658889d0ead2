"""`recallscope explore` as it is started and ended."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest

from commands import refused

COMMAND = [sys.executable, "-m", "recallscope.cli.main", "explore"]


def test_it_prints_its_address_answers_there_and_ends_quietly(tmp_path):
    done = subprocess.Popen(
        [*COMMAND, "--no-browser"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )  # fmt: skip
    try:
        address = done.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        with urlopen(f"{address}api/options") as answer:
            assert json.load(answer)["stores"] == []
    finally:
        done.send_signal(signal.SIGINT)
        out, err = done.communicate(timeout=60)
    assert (done.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--port", "70000"], "0..65535"),
        (["nowhere"], "is not a store"),
        (["--weights", "nothing.safetensors"], "no such weights file"),
        (["--host", "203.0.113.9"], "cannot be listened on"),
    ],
)
def test_mistakes_are_sentences(flags, word, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(run("explore", "--no-browser", *flags), word)


def test_the_missing_extra_is_named(tmp_path):
    code = (
        "import sys; sys.modules['uvicorn'] = None; from recallscope.cli.main import main; sys.exit(main(['explore']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "pip install 'recallscope[web]'" in done.stderr


def test_a_host_that_others_reach_is_warned_of(run, tmp_path, monkeypatch):
    from recallscope.web import server

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(server, "serve", lambda app, listener: listener.close())
    code, out, err = run("explore", "--no-browser", "--host", "0.0.0.0")
    assert code == 0
    assert "other machines" in err
    assert out.startswith("http://localhost:")
    assert run("explore", "--no-browser")[2] == ""

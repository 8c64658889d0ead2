"""Commands in processes of their own that start in milliseconds: forked from one that has torch loaded. And scripts."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from recallscope.registry import import_from
from recallscope.runs.engine import WORKER_ENVIRONMENT
from recallscope.runs.forkserver import ForkServer

ROOT = Path(__file__).resolve().parents[1]


@cache
def server() -> ForkServer:
    return ForkServer(os.environ | WORKER_ENVIRONMENT)


class Command:
    """A running `recallscope ...`, with what tests use of `Popen`; `stdout` and `stderr` come when it has ended."""

    def __init__(self, *arguments, cwd=None, env=()):
        self.args, self.returncode = [str(argument) for argument in arguments], None
        self._files, before = (tempfile.TemporaryFile(), tempfile.TemporaryFile()), os.getcwd()  # noqa: SIM115
        os.chdir(cwd or before)
        try:
            with open(os.devnull) as nothing:
                stdio = (nothing.fileno(), *(file.fileno() for file in self._files))
                self.pid = server().start(self.args, os.environ | dict(env), stdio, module="recallscope.cli.main")
        finally:
            os.chdir(before)

    def poll(self):
        server().collect()
        self.returncode = server().exit_code(self.pid)
        return self.returncode

    def wait(self, timeout=240):
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.01)
        if not self._files[0].closed:
            for file in self._files:
                file.seek(0)
            self.stdout, self.stderr = (file.read().decode() for file in self._files)
            for file in self._files:
                file.close()
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout=240):
        self.wait(timeout)
        return self.stdout, self.stderr


def recallscope(*arguments, code=0, **where):
    """Run a command to its end; what it printed, as JSON if that was asked for."""
    done = Command(*arguments, **where)
    assert done.wait() == code, done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout) if "--json" in done.args else done.stdout


@cache
def script(path):
    """A script of the repository, which is in no package, as a module; it may import what stands beside it."""
    path = ROOT / path
    sys.path.insert(0, str(path.parent))
    try:
        return import_from(str(path))
    finally:
        sys.path.remove(str(path.parent))


def refused(result, *phrases):
    """A command called in this process has answered a mistake: exit code 2, and one paragraph with these phrases."""
    code, out, err = result
    assert (code, out) == (2, ""), (code, out, err)
    assert "Traceback" not in err
    for word in phrases:
        assert word in err, err

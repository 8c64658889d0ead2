"""A process that has torch loaded and forks workers from it, in milliseconds instead of seconds.

`fork_server(environment)` gives the one server of this process for that environment; it serves any number of sweeps and
ends with this process. The server has one thread and never computes, so it can be forked safely; on macOS, where a
process with loaded frameworks cannot, it starts a new interpreter per worker. Requests and replies are JSON lines over
a socket: a request carries the worker's stdin, stdout and stderr as descriptors, and the reply is its pid; when a
worker ends, the server sends its exit code.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import Any

FORKS = sys.platform == "linux"
START_SECONDS = 120.0  # for the server to load torch, on a busy machine
# what a worker may have otherwise than its server: nothing that is loaded before the fork reads it
CHANGING = frozenset(("COLUMNS", "LINES", "PWD", "OLDPWD", "SHLVL", "_", "PYTEST_CURRENT_TEST"))


class ForkServerError(RuntimeError):
    """The server could not start, or is gone; the message has the end of its stderr."""


class ForkServer:
    """The caller's side of one server process."""

    def __init__(self, environment: Mapping[str, str], *, forks: bool = FORKS) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(START_SECONDS)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the server)
        self._unread = b""
        self._exits: dict[int, int] = {}
        self._lock = threading.RLock()
        self.alive = True
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-m", "recallscope.runs.forkserver", str(theirs.fileno()), str(int(forks))],
                stdin=subprocess.DEVNULL,
                stdout=self._stderr,
                stderr=self._stderr,
                env=dict(environment),
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is the driver's to handle
            )

    def fileno(self) -> int:
        """Readable when a worker has ended, or the server has: call `collect` then."""
        return self._socket.fileno()

    def start(
        self,
        arguments: list[str],
        environment: Mapping[str, str],
        stdio: tuple[int, int, int],
        module: str = "recallscope.runs.worker",
    ) -> int:
        """Start `main(arguments)` of a module, by default a worker, as its own process group; returns its pid.

        It runs in this process's folder, with stdin, stdout and stderr as given.
        """
        request = {"module": module, "arguments": arguments, "environment": dict(environment), "folder": os.getcwd()}
        with self._lock:
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode() + b"\n"], list(stdio))
                while self.alive:
                    for message in self._receive():
                        if "pid" in message:
                            return int(message["pid"])
            except OSError:
                pass
            self.alive = False
            raise ForkServerError(self._last_words())

    def collect(self) -> None:
        """Take note of the workers that have ended."""
        with self._lock:
            while self.alive and select.select([self._socket], [], [], 0)[0]:
                self._receive()

    def exit_code(self, pid: int) -> int | None:
        """The code of a worker that has ended, negative for a signal; None if it is not known to have."""
        with self._lock:
            return self._exits.get(pid)

    def forget(self, pid: int) -> None:
        """Drop the exit code of a worker; the system may use its pid again."""
        with self._lock:
            self._exits.pop(pid, None)

    def close(self) -> None:
        """End the server. Workers end when their stdin closes, not with it."""
        self.alive = False
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()
        self._process.wait()
        self._stderr.close()

    def _receive(self) -> list[dict[str, Any]]:
        data = self._socket.recv(2**16)
        if not data:
            self.alive = False
        *lines, self._unread = (self._unread + data).split(b"\n")
        messages = [json.loads(line) for line in lines]
        for message in messages:
            if "ended" in message:
                self._exits[message["ended"]] = message["code"]
        return messages

    def _last_words(self) -> str:
        self._process.kill()
        self._process.wait()
        self._stderr.seek(max(0, os.fstat(self._stderr.fileno()).st_size - 8_000))
        return self._stderr.read().decode(errors="replace").strip()


_servers: dict[frozenset[tuple[str, str]], ForkServer] = {}


def fork_server(environment: Mapping[str, str]) -> ForkServer:
    """This process's server for an environment; another environment replaces it, as torch reads it once."""
    key = frozenset((name, value) for name, value in environment.items() if name not in CHANGING)
    server = _servers.get(key)
    if server is not None:
        server.collect()
    if server is None or not server.alive:
        _close_all()
        server = _servers[key] = ForkServer(environment)
    return server


@atexit.register
def _close_all() -> None:
    while _servers:
        _servers.popitem()[1].close()


def serve(connection: socket.socket, *, forks: bool) -> None:
    """Answer requests until the caller is gone."""
    if forks:
        import recallscope.runs.worker
        import recallscope.train.loop  # noqa: F401 (what workers need, loaded once for all of them)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_read, False)
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    spawned: dict[int, subprocess.Popen[bytes]] = {}  # where workers are not forked; kept until they end

    def send(**message: int) -> None:
        connection.sendall(json.dumps(message).encode() + b"\n")

    while True:
        ready, _, _ = select.select([connection.fileno(), wake_read], [], [])
        if wake_read in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake_read, 2**12)
            for pid, code in _ended():
                spawned.pop(pid, None)
                send(ended=pid, code=code)
        if connection.fileno() not in ready:
            continue
        data, descriptors, _, _ = socket.recv_fds(connection, 2**20, 3)
        if not data:
            return
        while not data.endswith(b"\n"):
            data += connection.recv(2**20)
        request = json.loads(data)
        if not forks:
            process = _spawn(request, descriptors)
            spawned[process.pid] = process
            pid = process.pid
        elif (pid := os.fork()) == 0:
            connection.close()
            signal.set_wakeup_fd(-1)
            os.close(wake_read)
            os.close(wake_write)
            _become(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        send(pid=pid)


def _ended() -> list[tuple[int, int]]:
    """Pids and exit codes of the children that have ended since the last call."""
    found = []
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            found.append((ended[0], os.waitstatus_to_exitcode(ended[1])))
    return found


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Turn this fork into the process that was asked for; never returns."""
    code = 1
    try:
        os.setsid()
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
        os.closerange(3, max(descriptors) + 1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 (the old object may have read ahead)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        code = importlib.import_module(request["module"]).main(request["arguments"]) or 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _spawn(request: dict[str, Any], descriptors: list[int]) -> subprocess.Popen[bytes]:
    stdin, stdout, stderr = descriptors
    return subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", request["module"], *request["arguments"]],
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=request["environment"],
        cwd=request["folder"],
        start_new_session=True,
    )


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), forks=sys.argv[2] == "1")

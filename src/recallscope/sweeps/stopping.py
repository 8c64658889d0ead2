"""Ctrl-C as a request, not an accident."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask the driver to stop; a second Ctrl-C interrupts on the spot."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, _: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

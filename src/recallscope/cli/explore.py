"""`recallscope explore`: laws, runs and models in a page of the browser, served on this machine."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from recallscope.cli.flags import STORES, Unset

if TYPE_CHECKING:
    from recallscope.web.store_set import StoreSet

MODELS = Path("results/mechanism")


@dataclass(kw_only=True)
class Explore:
    """Open laws, runs, models and the paper in your browser.

    recallscope explore results/paper

    Shows predictions with sliders, the runs of a store (also while a sweep writes to it), the state of a model as a
    hash table, architectures compared, and the paper claim by claim. Nothing leaves this machine. Ctrl-C ends it.
    """

    store: Annotated[tuple[Path, ...], tyro.conf.Positional, Unset] = ()
    """Folders of runs (default: results/paper or runs/paper, if present)."""
    weights: Annotated[tuple[Path, ...], Unset] = ()
    """More weights to inspect (default: those below results/mechanism, if present)."""
    trust_code: bool = False
    """Import the code that weights name; without this flag no file makes recallscope run code."""
    port: int = 0
    """Port; 0 for a free one."""
    host: str = "127.0.0.1"
    """Address to listen on; any address but this machine's own lets others read your runs."""
    no_browser: bool = False
    """Only print the address."""

    def run(self) -> int:
        """Serve until interrupted."""
        if not 0 <= self.port < 65536:
            raise ValueError(f"port={self.port} is outside 0..65535.")
        from recallscope.web.server import is_loopback, listen, make_app, plotly_facts, serve

        plotly_facts()  # without Plotly this fails now, not at the first chart
        store_set = self._store_set()
        listener, hosts = listen(self.host, self.port)
        name = "localhost" if not is_loopback(self.host) else f"[{self.host}]" if ":" in self.host else self.host
        address = f"http://{name}:{listener.getsockname()[1]}/"
        if not is_loopback(self.host):
            print(
                f"warning: {self.host} may be reachable from other machines, and anyone who reaches it can read these "
                f"stores. There is no password. Leave --host out to be safe.",
                file=sys.stderr,
            )
        print(address, flush=True)
        if not self.no_browser:
            import webbrowser

            webbrowser.open(address)
        with suppress(KeyboardInterrupt):
            serve(make_app(store_set, hosts), listener)
        return 0

    def _store_set(self) -> StoreSet:
        from recallscope.runs.store import RunStore
        from recallscope.web.store_set import StoreSet

        stores = self.store or tuple(path for path in STORES if path.exists())[:1]
        weights = self.weights or tuple(sorted(MODELS.glob("*/weights.safetensors")))
        for path in weights:
            if not path.is_file():
                raise FileNotFoundError(2, "no such weights file", str(path))
        return StoreSet([RunStore(path) for path in stores], list(weights), self.trust_code)

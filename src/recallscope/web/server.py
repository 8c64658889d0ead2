"""The explorer's server: one page, its scripts, and what it asks for as JSON. It answers this machine only."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import cache, partial
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import h11
import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from uvicorn.protocols.http.h11_impl import H11Protocol

from recallscope import __version__
from recallscope.circuits.circuit import CIRCUITS
from recallscope.faults import explain, finite
from recallscope.specs import ARCHITECTURES
from recallscope.theory.law import catalogue, recommended
from recallscope.web.guard import Guard
from recallscope.web.predict import RANGES, PredictQuery, fit_parts
from recallscope.web.runs import StoreQuery, Watch
from recallscope.web.store_set import Query, StoreSet, has_torch

KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
QUICK, SLOW = 4, 2  # threads for short work, and for work that takes its time
MOST_SECONDS = 120.0  # until a question is given up
ASK_SECONDS = 10.0  # in which a request must have come, headers and body each
EVERY = 1.0  # seconds between two looks at a store
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
Endpoint = Callable[[Request], Awaitable[Response]]
log = logging.getLogger("recallscope.web")

# address below /api/: module of this package, function (store_set, fields) -> plain data or a Response, and its threads
ROUTES = {
    "options": ("server:options", QUICK),
    "runs": ("runs:rows", QUICK),
    "runs.csv": ("runs:rows_csv", QUICK),
    "run": ("runs:one_run", QUICK),
    "groups": ("runs:groups", QUICK),
    "group": ("runs:one_group", SLOW),
    "models": ("store_set:all_weights", QUICK),
    "memory": ("inside:memory", QUICK),
    "pictures": ("inside:pictures", QUICK),
    "architectures": ("studies:architectures", SLOW),
    "architecture_curves": ("studies:architecture_curves", SLOW),
    "claims": ("studies:claims", QUICK),
    "findings": ("studies:findings", SLOW),
    "figure": ("studies:figure", SLOW),
}
POSTED = ("memory",)


def page_files() -> dict[str, bytes]:
    """The page's own files by name; nothing else is served from the package."""
    folder = files(__package__) / "static"
    return {path.name: path.read_bytes() for path in folder.iterdir() if Path(path.name).suffix in KINDS}


def plotly_script() -> Path:
    """Plotly's JavaScript, as its Python package brings it."""
    return Path(str(files("plotly") / "package_data" / "plotly.min.js"))


@cache
def plotly_facts() -> dict[str, Any]:
    """Its version, and the names of the style sheets it adds to a page unless an element has that name already."""
    names = re.findall(rb'getElementById\("([0-9a-f]{64})"\)', plotly_script().read_bytes())
    return {"version": version("plotly"), "styles": sorted({name.decode() for name in names})}


def options(store_set: StoreSet, fields: dict[str, Any]) -> dict[str, Any]:
    """What can be chosen on the page."""
    Query.of(fields)
    with_law = recommended()
    return {
        "version": __version__,
        "plotly": plotly_facts(),
        "torch": has_torch(),
        "stores": [str(store.root) for store in store_set.stores],
        "models": with_law,
        "no_law": [kind for kind in ARCHITECTURES.names() if kind not in with_law],
        "circuits": list(CIRCUITS.names()),
        "ranges": RANGES,
        "start": PredictQuery().model_dump(),
        "laws": {law["name"]: law for law in catalogue()["laws"]},
    }


def answer(store_set: StoreSet, name: str, fields: dict[str, Any]) -> Any:
    """Call the function behind an address; its module is imported now, so that missing extras cost only its view."""
    module, _, function = ROUTES[name][0].partition(":")
    return getattr(import_module(f"recallscope.web.{module}"), function)(store_set, fields)


def make_app(store_set: StoreSet, hosts: frozenset[str]) -> Starlette:
    """The application; it answers requests whose Host is one of these, such as 127.0.0.1:8000."""
    threads = {count: anyio.CapacityLimiter(count) for count in (QUICK, SLOW)}
    watches, own = [Watch(store) for store in store_set.stores], page_files()

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in own:
            raise HTTPException(404, f"there is no {name[:80]!r} here.")
        return Response(own[name], media_type=KINDS[Path(name).suffix], headers={"cache-control": "no-cache"})

    async def plotly(request: Request) -> Response:
        return FileResponse(plotly_script(), headers={"cache-control": "max-age=86400"})

    def answers(name: str) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            fields = await _body(request) if request.method == "POST" else dict(request.query_params)
            try:
                with anyio.fail_after(MOST_SECONDS):
                    work, limiter = partial(answer, store_set, name, fields), threads[ROUTES[name][1]]
                    made = await anyio.to_thread.run_sync(work, limiter=limiter, abandon_on_cancel=True)
            except TimeoutError:
                raise HTTPException(
                    503, f"not done after {MOST_SECONDS:g} seconds. It goes on: ask again in a while."
                ) from None
            return made if isinstance(made, Response) else JSONResponse(finite(made))

        return endpoint

    async def fit(request: Request) -> Response:
        """Parts of the answer as they are made, one JSON object per line."""
        parts = fit_parts(PredictQuery.of(request.query_params), store_set)
        first = await anyio.to_thread.run_sync(_next, parts, limiter=threads[QUICK])  # may refuse the question

        async def lines() -> AsyncIterator[bytes]:
            part: dict[str, Any] | None = first
            try:
                while part is not None:
                    if part:
                        yield json.dumps(finite(part), allow_nan=False).encode() + b"\n"
                    part = await anyio.to_thread.run_sync(_next, parts, limiter=threads[SLOW])
            except Exception as error:  # the answer has begun: its last line says what happened
                yield json.dumps({"error": _explain(error)[1]}).encode() + b"\n"

        return StreamingResponse(lines(), media_type="application/x-ndjson")

    async def live(request: Request) -> Response:
        """A look at a store every second, as server-sent events, until the page is left."""
        number = StoreQuery.of(request.query_params).store
        store_set.store(number)  # there is one

        async def events() -> AsyncIterator[bytes]:
            seen: dict[str, Any] = {}
            while not app.state.ending():
                now = await anyio.to_thread.run_sync(watches[number].look, limiter=threads[QUICK])
                yield b": no news\n\n" if now == seen else f"data: {json.dumps(finite(now))}\n\n".encode()
                seen = now
                await anyio.sleep(EVERY)

        return StreamingResponse(events(), media_type="text/event-stream")

    app = Starlette(
        routes=[
            Route("/", page),
            Route("/plotly.min.js", plotly),
            Route("/static/{name}", page),
            Route("/api/fit", _safely(fit)),
            Route("/api/live", _safely(live)),
            *(Route(f"/api/{name}", _safely(answers(name)), methods=["POST" if name in POSTED else "GET"])
              for name in ROUTES),
        ],
        middleware=[Middleware(Guard, hosts=hosts)],
        exception_handlers={HTTPException: _on_error},
    )  # fmt: skip
    app.state.ending = lambda: False
    return app


def listen(host: str, port: int) -> tuple[socket.socket, frozenset[str]]:
    """A socket on a free port if `port` is 0, and the names by which a browser may call it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(128)  # from now on, so that the address can be told before the server runs
    except OSError as error:
        listener.close()
        raise ValueError(f"{host}:{port} cannot be listened on: {error.strerror}. Try --port 0.") from error
    here = listener.getsockname()[1]
    names = {*LOOPBACK, f"[{host}]" if ":" in host else host} | (set() if is_loopback(host) else {socket.gethostname()})
    return listener, frozenset(f"{name}:{here}".lower() for name in names)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server there."""
    return host in (*LOOPBACK, "::1") or host.startswith("127.")


class _Impatient(H11Protocol):
    """HTTP with a time limit for the headers of a request; uvicorn waits for ever."""

    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for headers."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Stop waiting when the headers are complete; those of a next request have as long."""
        super().data_received(data)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for."""
        super().connection_lost(exc)
        if self._limit is not None:
            self._limit.cancel()

    def _wait(self) -> None:
        incomplete = self.conn.their_state is h11.IDLE
        if self._limit is not None and not incomplete:
            self._limit.cancel()
            self._limit = None
        elif self._limit is None and incomplete:
            self._limit = self.loop.call_later(ASK_SECONDS, self.transport.close)


def config(app: Starlette) -> uvicorn.Config:
    """How the server behaves."""
    quiet: Any = {"log_level": "critical", "access_log": False, "lifespan": "off"}
    return uvicorn.Config(app, http=_Impatient, timeout_graceful_shutdown=1, **quiet)


def serve(app: Starlette, listener: socket.socket) -> None:
    """Answer until interrupted."""
    server = uvicorn.Server(config(app))
    app.state.ending = lambda: server.should_exit
    server.run(sockets=[listener])


def _next(parts: Iterator[dict[str, Any]]) -> dict[str, Any] | None:
    return next(parts, None)


def _safely(endpoint: Endpoint) -> Endpoint:
    """Whatever goes wrong is answered with a sentence."""

    async def called(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Exception as error:
            return await _on_error(request, error)

    return called


async def _body(request: Request) -> dict[str, Any]:
    try:
        with anyio.fail_after(ASK_SECONDS):
            fields = json.loads(await request.body())
    except TimeoutError:
        raise HTTPException(408, f"the question did not come within {ASK_SECONDS:g} seconds.") from None
    except ClientDisconnect:
        raise HTTPException(413, "the question is too long, or was broken off.") from None
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the question is not JSON ({error}).") from None
    if not isinstance(fields, dict):
        raise HTTPException(400, "a question is a JSON object.")
    return fields


def _explain(error: Exception) -> tuple[int, str]:
    """Status and sentence for what went wrong; never a traceback."""
    if isinstance(error, HTTPException):
        return error.status_code, error.detail
    fault = explain(error)
    if fault.status == 500:
        log.error("%s: %s", type(error).__name__, error)
    return fault.status, fault.sentence


async def _on_error(request: Request, error: Exception) -> Response:
    code, sentence = _explain(error)
    return JSONResponse({"error": sentence}, code)

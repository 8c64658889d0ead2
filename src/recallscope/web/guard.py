"""Who may ask: pages of this server alone, in small requests; and headers that keep the page to itself.

A page elsewhere on the web can send requests to a server on this machine, under a name that points here (DNS
rebinding) or across sites. The first is refused by the Host header, the second by Origin and Sec-Fetch-Site.
"""

from __future__ import annotations

from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY = 64 * 1024  # bytes of a POST
# Plotly sets style attributes, and adds rules to a <style> that it makes empty, whose hash is that of no bytes at all.
# The style sheet of its maps is kept out by charts.js.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='",
        "style-src-attr 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


class Guard:
    """ASGI middleware: refuse what is not asked by our own page, and add the headers to every answer."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self.app, self.hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it here."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # a websocket: there are none

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        why_not = self._why_not(scope["method"], Headers(scope=scope))
        if why_not:
            code, sentence = why_not
            await JSONResponse({"error": sentence}, code)(scope, receive, send_guarded)
            return
        left = MOST_BODY

        async def receive_some() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            return {"type": "http.disconnect"} if left < 0 else message

        await self.app(scope, receive_some, send_guarded)

    def _why_not(self, method: str, headers: Headers) -> tuple[int, str] | None:
        if headers.get("host", "").lower() not in self.hosts:
            return 421, f"this server answers to {', '.join(sorted(self.hosts))} only."
        if headers.get("sec-fetch-site", "none") == "cross-site":
            return 403, "the request comes from another site."
        if method == "POST":
            origin = headers.get("origin")
            if origin is not None and origin.removeprefix("http://") not in self.hosts:
                return 403, "the request comes from another site."
            if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                return 415, "a question is posted as application/json."
            length: Any = headers.get("content-length", "0")
            if not length.isdecimal() or int(length) > MOST_BODY:
                return 413, f"a question has at most {MOST_BODY} bytes."
        return None

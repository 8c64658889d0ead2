"""HTML by construction: a text becomes markup only through `element`, which escapes it."""

from __future__ import annotations

from html import escape

VOID = frozenset(("br", "img", "input", "link", "meta"))


class Markup(str):
    """A text that is markup already."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: str | bool) -> Markup:
    """<name ...>children</name>; a trailing _ of an attribute is dropped, others become -; False leaves it out."""
    words = "".join(
        f" {key.removesuffix('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value))}"')
        for key, value in attributes.items()
        if value is not False
    )
    opened = f"<{name}{words}>"
    return Markup(opened if name in VOID else f"{opened}{together(*children)}</{name}>")


def together(*children: str) -> Markup:
    """Children one after another, texts escaped."""
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children))


def lines(*children: str) -> Markup:
    """The same, one on a line, empty ones left out: for a source that can be read."""
    return Markup("\n" + "".join(together(child) + "\n" for child in children if child))

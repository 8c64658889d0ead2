"""Links and navigation of the site: pages that move, and folders that stand for all their pages."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from typing import Any

LINK = re.compile(r"\]\((?!https?:|#)([^)\s]+)\)")


def moved(text: str) -> str:
    """A page from the root of the repository, as if it stood in docs/: links lose their `docs/`."""
    return LINK.sub(lambda link: f"]({link[1].removeprefix('docs/')})", text)


def named(nav: Any) -> Iterator[str]:
    """Every page that the navigation names."""
    for item in nav:
        value = next(iter(item.values())) if isinstance(item, dict) else item
        if isinstance(value, list):
            yield from named(value)
        else:
            yield value


def expanded(nav: Iterable[Any], pages: list[str], known: set[str]) -> list[Any]:
    """`laws/` becomes every page of that folder that is not named by itself."""
    found: list[Any] = []
    for item in nav:
        if isinstance(item, dict):
            ((title, value),) = item.items()
            found.append({title: expanded(value, pages, known) if isinstance(value, list) else value})
        elif item.endswith("/"):
            found += [page for page in pages if posixpath.dirname(page) == item[:-1] and page not in known]
        else:
            found.append(item)
    return found

"""What mkdocs calls while it builds the site: pages made from the code, and pages that live outside of docs/."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from api_pages import api_pages
from command_pages import command_page
from law_pages import law_pages
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from notebook_pages import notebook_pages
from pictures import pictures

ROOT = Path(__file__).resolve().parents[2]
AT_THE_ROOT = ("NOTATION.md", "CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"\]\((?!https?:|#)([^)\s]+)\)")


def generated() -> Iterator[tuple[str, str | bytes]]:
    """Path below docs/ and content of everything that is not a file there."""
    for name in AT_THE_ROOT:
        yield name, moved((ROOT / name).read_text(encoding="utf-8"))
    yield "commands.md", command_page()
    yield from pictures()
    yield from api_pages()
    yield from law_pages()
    yield from notebook_pages()


def moved(text: str) -> str:
    """A page from the root of the repository, as if it stood in docs/: links lose their `docs/`."""
    return LINK.sub(lambda link: f"]({link[1].removeprefix('docs/')})", text)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and give folders named in the navigation all their pages."""
    for path, content in generated():
        files.append(File.generated(config, path, content=content))
    named = set(_named(config.nav or []))
    config.nav = _expanded(config.nav or [], sorted(file.src_uri for file in files.documentation_pages()), named)
    return files


def _named(nav: Any) -> Iterator[str]:
    """Every page that the navigation names."""
    for item in nav:
        value = next(iter(item.values())) if isinstance(item, dict) else item
        if isinstance(value, list):
            yield from _named(value)
        else:
            yield value


def _expanded(nav: Iterable[Any], pages: list[str], named: set[str]) -> list[Any]:
    """`laws/` becomes every page of that folder that is not named by itself."""
    found: list[Any] = []
    for item in nav:
        if isinstance(item, dict):
            ((title, value),) = item.items()
            found.append({title: _expanded(value, pages, named) if isinstance(value, list) else value})
        elif item.endswith("/"):
            found += [page for page in pages if posixpath.dirname(page) == item[:-1] and page not in named]
        else:
            found.append(item)
    return found

"""What mkdocs calls while it builds the site: pages made from the code, and pages that live outside of docs/."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

from api_pages import api_pages
from command_pages import command_page
from latex2mathml.converter import convert
from law_pages import STORE, law_pages, with_links
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from navigation import expanded, moved, named
from notebook_pages import notebook_pages
from pictures import pictures

from recallscope.studies.paper_runs import PaperRuns
from recallscope.studies.report import with_tables

ROOT = Path(__file__).resolve().parents[2]
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
AT_THE_ROOT = ("NOTATION.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md")


def generated() -> Iterator[tuple[str, str | bytes]]:
    """Path below docs/ and content of everything that is not a file there."""
    for name in AT_THE_ROOT:
        yield name, moved((ROOT / name).read_text(encoding="utf-8"))
    yield "commands.md", command_page()
    yield from pictures()
    yield from api_pages()
    yield from law_pages()
    yield from notebook_pages()


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """The table of laws is made from the records as they are, with links."""
    return with_links(with_tables(markdown, PaperRuns(STORE, "small"))) if page.file.src_uri == "LAWS.md" else markdown


def on_page_content(html: str, **_: Any) -> str:
    """Formulas as MathML, which browsers show without a script."""
    return FORMULA.sub(lambda one: convert(unescape(one[2]), display="block" if one[1] == "div" else "inline"), html)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, and give folders named in the navigation all their pages."""
    for path, content in generated():
        files.append(File.generated(config, path, content=content))
    pages = sorted(file.src_uri for file in files.documentation_pages())
    config.nav = expanded(config.nav or [], pages, set(named(config.nav or [])))
    return files

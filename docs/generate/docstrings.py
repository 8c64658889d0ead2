"""Our docstrings as Markdown: the lines that begin with a word such as `Paper:` become paragraphs of their own."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

MARKS = re.compile(r"(?:^|(?<=\n)|(?<=[.)])\s{2,})(Paper|Holds for|Departs):\s*")


def in_markdown(text: str) -> str:
    """The same text, a paragraph for each of Paper, Holds for and Departs; the indent of what follows is taken away."""
    parts = MARKS.split(text)
    if len(parts) == 1:
        return text
    named = [f"**{name}:** {_flat(body)}" for name, body in zip(parts[1::2], parts[2::2], strict=True)]
    return "\n\n".join(filter(None, [parts[0].strip(), *named]))


def _flat(body: str) -> str:
    return "\n".join(line.strip() for line in body.strip().splitlines())


class Paragraphs(Extension):
    """For the API pages: mkdocstrings reads the sources by itself, and hands each object to this."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Rewrite the docstring of one object."""
        if obj.docstring:
            obj.docstring.value = in_markdown(obj.docstring.value)

"""From an exception to one paragraph: what came, which rule it breaks, the way out."""

from __future__ import annotations

import os
import re

from pydantic import ValidationError

from recallscope.faults import in_sentences

_ALLOCATION = re.compile("can't allocate memory|not enough memory|out of memory")  # what torch says

# packages of the optional parts: what needs them, and the extra that brings them
_EXTRAS = {
    **dict.fromkeys(("torch", "einops", "jaxtyping", "safetensors"), ("this verb", "torch")),
    "transformers": ("probing a checkpoint", "hf"),
    "matplotlib": ("drawing", "figures"),
    "jinja2": ("a page of the report", "figures"),
    **dict.fromkeys(("starlette", "uvicorn", "plotly", "anyio"), ("the explorer", "web")),
}


def explain(error: Exception) -> tuple[str, int]:
    """The paragraph and the exit code: 2 for the user's mistakes, 1 for ours."""
    if isinstance(error, ValidationError):
        return in_sentences(error), 2
    if isinstance(error, ModuleNotFoundError) and error.name in _EXTRAS:
        what, extra = _EXTRAS[error.name]
        return f"{what} needs {error.name}, which is not installed. Run: pip install 'recallscope[{extra}]'", 2
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return f"{name}{str(error.strerror or error).rstrip('.')}.", 2
    if isinstance(error, ValueError):
        return str(error), 2
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _ALLOCATION.search(str(error))):
        reason = (str(error).strip().splitlines() or ["no details"])[0].rstrip(".")
        here = f"this machine has {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.1f} GB"
        return f"not enough memory for this request ({reason}); {here}. Ask for smaller sizes, or less at a time.", 2
    if isinstance(error, RecursionError):
        return (
            f"the input is nested too deeply to be read ({error}). Specs, grids and records are a few levels deep.",
            2,
        )
    return (
        f"internal error, {type(error).__name__}: {error}. Please report it; "
        f"RECALLSCOPE_TRACEBACK=1 in the environment shows where.",
        1,
    )

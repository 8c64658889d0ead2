"""From an exception to one sentence for the user: what came in, which rule it breaks, the way out.

The command line and the explorer both use `explain`, so the same mistake reads the same in both.
"""

from __future__ import annotations

import os
import re
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError

_ALLOCATION = re.compile("can't allocate memory|not enough memory|out of memory")  # torch's wording
_EXTRAS = {  # package: the extra that installs it
    **dict.fromkeys(("torch", "einops", "jaxtyping", "safetensors"), "torch"),
    "transformers": "hf",
    **dict.fromkeys(("matplotlib", "jinja2", "pandas"), "figures"),
    **dict.fromkeys(("starlette", "uvicorn", "plotly", "anyio"), "web"),
}

_RULES = {
    "greater_than": "it must be greater than {gt}",
    "greater_than_equal": "it must be at least {ge}",
    "less_than": "it must be less than {lt}",
    "less_than_equal": "it must be at most {le}",
    "finite_number": "it must be a finite number",
    "int_type": "it must be a whole number",
    "float_type": "it must be a number",
    "bool_type": "it must be true or false",
    "literal_error": "it must be one of {expected}",
    "extra_forbidden": "no such field",
    "missing": "it is needed",
}


_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"}


class Fault(NamedTuple):
    """An exception explained: the sentence, the command's exit code, the explorer's HTTP status."""

    sentence: str
    exit_code: int = 2  # the user's mistake; 1 is ours
    status: int = 400


def printable(text: str) -> str:
    """A text of anybody's as a terminal may have it: control characters, which would steer the terminal, as codes."""
    return text.translate(_CONTROLS)


def explain(error: Exception) -> Fault:
    """Explain any exception; one that is not foreseen is an internal error."""
    fault = _explain(error)
    return fault._replace(sentence=printable(fault.sentence))


def _explain(error: Exception) -> Fault:
    if isinstance(error, ValidationError):
        return Fault(in_sentences(error))
    if isinstance(error, ModuleNotFoundError) and error.name in _EXTRAS:
        install = f"pip install 'recallscope[{_EXTRAS[error.name]}]'"
        return Fault(f"this needs {error.name}, which is not installed. Run: {install}", status=424)
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return Fault(f"{name}{str(error.strerror or error).rstrip('.')}.", status=404)
    if isinstance(error, ValueError):
        return Fault(str(error))
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _ALLOCATION.search(str(error))):
        reason = (str(error).strip().splitlines() or ["no details"])[0].rstrip(".")
        here = f"this machine has {os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.1f} GB"
        return Fault(f"not enough memory for this request ({reason}); {here}. Use smaller sizes, or less at a time.")
    if isinstance(error, RecursionError):
        return Fault(f"the input is nested too deeply ({error}). Specs, grids and records are a few levels deep.")
    return Fault(f"internal error, {type(error).__name__}: {error}. Please report it.", 1, 500)


def in_sentences(error: ValidationError) -> str:
    """One sentence for every field that is wrong."""
    return " ".join(_sentence(dict(fault)) for fault in error.errors(include_url=False))


def _sentence(fault: dict[str, Any]) -> str:
    """What is wrong with one field of a spec."""
    if fault["type"] == "value_error":  # our own validators speak in full already
        return str(fault["ctx"]["error"])
    place = ".".join(str(part) for part in fault["loc"])
    rule = _RULES.get(fault["type"])
    text = rule.format(**fault.get("ctx", {})) if rule else str(fault["msg"]).lower()
    came = "" if fault["type"] == "missing" else f"={_short(fault['input'])}"
    return f"{place}{came}: {text}."


def _short(value: Any) -> str:
    if isinstance(value, BaseModel):
        return type(value).__name__
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def finite(value: Any) -> Any:
    """Plain data that JSON can hold: not-a-number and infinity become None."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value

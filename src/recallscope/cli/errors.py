"""From an exception to one paragraph: what came, which rule it breaks, the way out."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ValidationError

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
    "extra_forbidden": "there is no such field",
    "missing": "it is needed",
}

# packages of the optional parts: what needs them, and the extra that brings them
_EXTRAS = {
    **dict.fromkeys(("torch", "einops", "jaxtyping", "safetensors"), ("this verb", "torch")),
    "matplotlib": ("drawing", "figures"),
    "jinja2": ("a page of the report", "figures"),
}


def explain(error: Exception) -> tuple[str, int]:
    """The paragraph and the exit code: 2 for the user's mistakes, 1 for ours."""
    if isinstance(error, ValidationError):
        return " ".join(_sentence(dict(fault)) for fault in error.errors(include_url=False)), 2
    if isinstance(error, ModuleNotFoundError) and error.name in _EXTRAS:
        what, extra = _EXTRAS[error.name]
        return f"{what} needs {error.name}, which is not installed. Run: pip install 'recallscope[{extra}]'", 2
    if isinstance(error, OSError):
        name = f"{error.filename}: " if error.filename else ""
        return f"{name}{error.strerror or error}.", 2
    if isinstance(error, ValueError):
        return str(error), 2
    if isinstance(error, MemoryError):
        return f"not enough memory for this request ({error}). Ask for less at a time.", 2
    return (
        f"internal error, {type(error).__name__}: {error}. Please report it; "
        f"RECALLSCOPE_TRACEBACK=1 in the environment shows where.",
        1,
    )


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

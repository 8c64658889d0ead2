"""What is wrong with the fields of a spec, in sentences: what came, and which rule it breaks. Numbers JSON can hold."""

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

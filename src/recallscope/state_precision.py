"""How a recurrent state is stored between tokens: the number format, its scale, the rounding and how often. No torch.

`ops/state_rounding.py` rounds tensors by it, `theory/laws/precision.py` predicts what that costs.
"""

from __future__ import annotations

from typing import Annotated, Literal, NamedTuple, Self

from pydantic import Field, model_validator

from recallscope.registry import suggestion
from recallscope.specs import Positive, Size, Spec

Scale = Literal["tensor", "row", "column", "block16", "block32", "fixed", "none"]
Rounding = Literal["nearest", "stochastic", "error-feedback"]


class Format(NamedTuple):
    """A number format: integer codes -levels .. levels, or a sign, an exponent and a mantissa."""

    bits: int
    levels: int = 0  # q of an integer, 2^(bits - 1) - 1; 0 for floats
    mantissa: int = 0  # bits after the point
    least_exponent: int = 0  # of a normal number
    largest: float = 0.0  # finite number

    @property
    def is_float(self) -> bool:
        """Whether the distance between neighbours grows with the number."""
        return self.levels == 0

    @property
    def full_scale(self) -> float:
        """What the largest number of a scale group becomes: q, or the largest finite number."""
        return self.largest if self.is_float else float(self.levels)


FORMATS: dict[str, Format] = {
    **{f"int{bits}": Format(bits, levels=2 ** (bits - 1) - 1) for bits in range(2, 17)},
    "bf16": Format(16, mantissa=7, least_exponent=-126, largest=(2 - 2.0**-7) * 2.0**127),
    "fp16": Format(16, mantissa=10, least_exponent=-14, largest=65504.0),
    "fp8-e4m3": Format(8, mantissa=3, least_exponent=-6, largest=448.0),
    "fp8-e5m2": Format(8, mantissa=2, least_exponent=-14, largest=57344.0),
    "fp4-e2m1": Format(4, mantissa=1, least_exponent=0, largest=6.0),
}


def format_names() -> tuple[str, ...]:
    """The formats, integers in short."""
    return ("int2 .. int16", *(name for name, number in FORMATS.items() if number.is_float))


class StatePrecision(Spec):
    """A state of P x N numbers per head, one row per channel of the values, stored in `format` after some tokens.

    Absmax scales are kept in full precision: the largest number of a group becomes the largest code.
    """

    format: str = Field(description="int2 .. int16, bf16, fp16, fp8-e4m3, fp8-e5m2 or fp4-e2m1")
    scale: Scale = Field(
        description="numbers that share an absmax scale: those of a head (tensor), of a row or column of its matrix, "
        "or 16 or 32 neighbours in a row; fixed: the step is given; none: floats only"
    )
    step: Positive | None = Field(None, description="distance between integer codes, with scale=fixed")
    rounding: Rounding = Field(
        "nearest",
        description="nearest, ties to even; stochastic, right on average; error-feedback: nearest, and what rounding "
        "took off is kept and added back before the next token",
    )
    residual_bits: Annotated[int, Field(ge=2, le=16)] | None = Field(
        None, description="bits of the rounding error that error-feedback keeps (default: all of it, exactly)"
    )
    every: Size | Literal["once"] = Field(
        1, description="tokens between roundings; once: only before the first query, as a cached prefix"
    )

    @model_validator(mode="after")
    def _fields_fit_together(self) -> Self:
        if self.format not in FORMATS:
            raise ValueError(
                f"format={self.format!r} is not a format of a state. {suggestion(self.format, list(FORMATS))}"
            )
        number = FORMATS[self.format]
        if self.scale == "none" and not number.is_float:
            raise ValueError(
                f"scale='none' with {self.format}: integer codes need a scale. Use scale='row' or 'fixed'."
            )
        if (self.step is not None) != (self.scale == "fixed"):
            raise ValueError(
                "a fixed scale needs its step, and no other scale takes one. Use scale='fixed', step=0.01."
            )
        if self.rounding == "error-feedback" and self.every == "once":
            raise ValueError(
                "error-feedback with every='once': nothing is carried on to a second rounding. Use rounding='nearest'."
            )
        if self.residual_bits is None:
            return self
        if self.rounding != "error-feedback":
            raise ValueError(
                f"residual_bits={self.residual_bits} with {self.rounding} rounding: only error-feedback keeps a "
                f"residual. Use rounding='error-feedback', or leave residual_bits out."
            )
        if self.residual_bits > number.bits:
            raise ValueError(
                f"residual_bits={self.residual_bits} is wider than the state, which has {number.bits} bits: a state of "
                f"{number.bits + self.residual_bits} bits would be better. Use residual_bits <= {number.bits}."
            )
        return self

    @classmethod
    def of(cls, name: str, /, scale: str | None = None, **fields: object) -> StatePrecision:
        """With the usual scale of the format where none is given: a row for integers, 16 neighbours for fp4."""
        if scale is None:
            scale = "row" if name.startswith("int") else "block16" if name.startswith("fp4") else "none"
        return cls.model_validate({"format": name, "scale": scale, **fields})

    @property
    def number(self) -> Format:
        """The format's numbers."""
        return FORMATS[self.format]

    @property
    def label(self) -> str:
        """In a few words, such as `int8 per row, nearest, every token`."""
        scale = {"none": "", "fixed": f" step {self.step}"}.get(self.scale, f" per {self.scale}")
        residual = f" ({self.residual_bits} bits kept)" if self.residual_bits else ""
        when = {1: "every token", "once": "once"}.get(self.every, f"every {self.every} tokens")
        return f"{self.format}{scale}, {self.rounding}{residual}, {when}"

"""Spec of hybrids: layers of several architectures, as in Qwen3-Next or Kimi Linear."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from pydantic import Field, model_validator

from recallscope.architectures.matrix_memory import MatrixMemory
from recallscope.architectures.sizes import with_residual
from recallscope.specs import architecture, find_architecture


@architecture("hybrid")
class HybridSpec(MatrixMemory):
    """Layers of several architectures; what differs from a default here goes to each of them."""

    model = "recallscope.architectures.hybrid_model:Hybrid"
    PUBLISHED: ClassVar[dict[str, Any]] = {"as_published": True, "norm": "rms", "residual": True}
    FOLLOWING = ("residual", "num_layers")
    layers: str = Field(
        "gated_delta_net attention",
        description="architectures from the bottom up, each with fields of its own: 'gla window_attention,window=32'",
    )
    as_published: bool = Field(False, description="every layer as its authors have it, not in its minimal variant")

    @model_validator(mode="before")
    @classmethod
    def _deep_models_have_residuals(cls, data: Any) -> Any:
        """And as many layers as are named."""
        if not isinstance(data, dict):
            return data
        named = len(str(data.get("layers", cls.model_fields["layers"].default)).split())
        if data.get("num_layers", named) != named:
            raise ValueError(f"num_layers={data['num_layers']}, but layers names {named}. Leave num_layers out.")
        return with_residual({**data, "num_layers": named})

    @model_validator(mode="after")
    def _layers_are_matrix_memories(self) -> HybridSpec:
        _ = self.layer_specs
        return self

    @property
    def layer_specs(self) -> tuple[MatrixMemory, ...]:
        """The spec of every layer, as of a model of that layer alone."""
        own = {"kind", "layers", "as_published", "num_layers"}
        shared = {name: getattr(self, name) for name in MatrixMemory.model_fields if name in self.changed - own}
        sizes = {"embed_dim": self.embed_dim, "state_dim": self.state_dim, "residual": self.residual}
        found = []
        for word in self.layers.split():
            kind, *given = word.split(",")
            cls = find_architecture(kind)
            if not issubclass(cls, MatrixMemory) or issubclass(cls, HybridSpec):
                raise ValueError(
                    f"layers={self.layers!r}: {kind} is not a matrix memory. Use attention, or one of "
                    f"docs/ARCHITECTURES.md."
                )
            fields = dict(pair.partition("=")[::2] for pair in given)
            if "num_layers" in fields:
                raise ValueError(f"layers={self.layers!r}: every word is one layer. Repeat {kind} instead.")
            layer = {name: _value(text) for name, text in fields.items()}
            found.append(cls(**((cls.PUBLISHED if self.as_published else {}) | shared | sizes | layer)))
        return tuple(found)

    @property
    def state_entries(self) -> int | None:  # type: ignore[override]
        """Those of all layers together; no fixed number with attention."""
        sizes = [layer.state_entries for layer in self.layer_specs]
        return None if None in sizes else sum(sizes)

    def state_entries_after(self, tokens: int) -> int:
        """Those of all layers together."""
        return sum(layer.state_entries_after(tokens) or 0 for layer in self.layer_specs)

    @property
    def writes_per_token(self) -> int:
        """The most of any layer."""
        return max(layer.writes_per_token for layer in self.layer_specs)

    def work_per_token(self) -> float:
        """Of all layers."""
        return sum(layer.work_per_token() for layer in self.layer_specs)


def _value(text: str) -> Any:
    """A number or truth value if it reads as one, else the word itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text

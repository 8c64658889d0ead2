"""Hybrids: layers of several architectures between one embedding and one head."""

from typing import final

from recallscope.architectures.hybrid import HybridSpec
from recallscope.architectures.matrix_memory import MatrixMemory
from recallscope.architectures.matrix_memory_model import MemoryLayer, MemoryModel


@final
class Hybrid(MemoryModel):
    """Each layer is the one of a model of its own architecture."""

    def make_layers(self, spec: MatrixMemory) -> list[MemoryLayer]:
        """From the bottom up, by the names in the spec."""
        assert isinstance(spec, HybridSpec)
        single = [layer.blank_model(vocab_size=1) for layer in spec.layer_specs]
        return [model.layers[0] for model in single if isinstance(model, MemoryModel)]

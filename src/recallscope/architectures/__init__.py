"""Architectures: for each a spec that is read without torch (`linear.py`) and its layers (`linear_model.py`).

Both may stand in one file where torch is there anyway, as in an architecture of one's own.
"""

from recallscope.lazy import lazy_names

_HOMES = {
    "Details": "recallscope.architectures.details",
    "Full2Layer": "recallscope.architectures.mamba2_model",
}

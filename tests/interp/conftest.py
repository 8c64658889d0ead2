"""Trained models, once for all processes of a session: nothing here changes them."""

import pytest
from filelock import FileLock
from subjects import TRAINED, quickly_trained

from recallscope.train.weights import read_weights, write_weights


def once(name: str):
    @pytest.fixture(scope="session", name=name)
    def found(tmp_path_factory, request):
        folder = tmp_path_factory.getbasetemp()
        path = (folder.parent if hasattr(request.config, "workerinput") else folder) / f"{name}.safetensors"
        with FileLock(f"{path}.lock"):
            if not path.exists():
                write_weights(path, *quickly_trained(name))
        return read_weights(path)[0]

    return found


trained, trained_wide, trained_heads, trained_deep, trained_full = map(once, TRAINED)

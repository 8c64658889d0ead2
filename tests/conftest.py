"""Shapes are checked on every call: the hook has to be in place before the first import of the package."""

from jaxtyping import install_import_hook

CHECKED = (
    "tasks", "ops", "architectures", "circuits", "train", "interp", "measuring.state", "probing.caches",
    "probing.readers", "probing.asking", "probing.layers",
)  # fmt: skip
install_import_hook([f"recallscope.{name}" for name in CHECKED], "beartype.beartype")

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import settings  # noqa: E402

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Results and times that do not depend on how many cores the machine has."""
    torch.set_num_threads(1)


@pytest.fixture
def run(capsys):
    """A command line to call: what it returns, prints and complains."""
    from recallscope.cli.main import main

    def call(*arguments):
        try:
            code = main([str(a) for a in arguments])
        except SystemExit as stop:  # the parser's own way out
            code = stop.code
        out, err = capsys.readouterr()
        return code, out, err

    return call

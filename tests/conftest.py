"""Shapes are checked on every call: the hook has to be in place before the first import of the package."""

import os

THREADS = os.environ.get("RECALLSCOPE_TEST_THREADS", "1")  # two processes of tests share the cores
os.environ.setdefault("OMP_NUM_THREADS", THREADS)  # read when numpy and torch are first imported
os.environ.setdefault("OPENBLAS_NUM_THREADS", THREADS)

from jaxtyping import install_import_hook  # noqa: E402

CHECKED = (
    "tasks", "ops", "architectures", "circuits", "train", "interp", "measuring.state", "measuring.checkpoints.caches",
    "measuring.checkpoints.readers", "measuring.checkpoints.asking", "measuring.checkpoints.layers",
)  # fmt: skip
install_import_hook([f"recallscope.{name}" for name in CHECKED], "beartype.beartype")

import pytest  # noqa: E402
import torch  # noqa: E402
from hypothesis import Phase, settings  # noqa: E402

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("unshrunk", settings.get_profile("repeatable"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("repeatable")


@pytest.fixture(scope="session", autouse=True)
def _threads() -> None:
    torch.set_num_threads(int(THREADS))


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

"""Shapes are checked on every call: the hook has to be in place before the first import of the package."""

import os
from functools import wraps

THREADS = os.environ.get("RECALLSCOPE_TEST_THREADS", "1")  # two processes of tests share the cores
os.environ.setdefault("OMP_NUM_THREADS", THREADS)  # read when numpy and torch are first imported
os.environ.setdefault("OPENBLAS_NUM_THREADS", THREADS)

import jaxtyping  # noqa: E402

CHECKED = (
    "tasks", "ops", "architectures", "circuits", "train", "interp", "measuring.state", "measuring.checkpoints.caches",
    "measuring.checkpoints.readers", "measuring.checkpoints.asking", "measuring.checkpoints.layers",
)  # fmt: skip
jaxtyping.install_import_hook([f"recallscope.{name}" for name in CHECKED], "beartype.beartype")

import pytest  # noqa: E402
import torch  # noqa: E402
from filelock import FileLock  # noqa: E402
from hypothesis import Phase, settings  # noqa: E402

from recallscope.train import loop  # noqa: E402

CHECKED_STEPS = 20


def checked_at_first(train, step, jaxtyped):
    """Shapes repeat from step to step, and to check them takes three quarters of a training's time: the first steps
    are checked. What is defined inside a function would be wrapped anew, at each call; after these steps it is not."""
    running = []

    @wraps(train)
    def train_run(*arguments, **options):
        running.append(train)
        try:
            return train(*arguments, **options)
        finally:
            running.pop()
            jaxtyping.config.update("jaxtyping_disable", False)

    @wraps(step)
    def counted(self, *arguments, **options):
        if running and self.optimizers[0].steps >= CHECKED_STEPS:
            jaxtyping.config.update("jaxtyping_disable", True)
        return step(self, *arguments, **options)

    def unless_off(**options):
        decorate = jaxtyped(**options)

        def wrap(function):
            off = jaxtyping.config.jaxtyping_disable and "<locals>" in function.__qualname__
            return function if off else decorate(function)

        return wrap

    return train_run, counted, unless_off


loop.train_run, loop.FlatWeights.step, jaxtyping.jaxtyped = checked_at_first(
    loop.train_run, loop.FlatWeights.step, jaxtyping.jaxtyped
)

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


@pytest.fixture(scope="session")
def once(tmp_path_factory, request):
    """`once(name, make)`: a folder that `make` fills, one for all processes of a session; nobody changes it."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if hasattr(request.config, "workerinput") else base

    def shared(name, make):
        with FileLock(base / f"{name}.lock"):
            if not (base / name).exists():
                (base / f"{name}.new").mkdir()
                make(base / f"{name}.new")
                (base / f"{name}.new").rename(base / name)
        return base / name

    return shared

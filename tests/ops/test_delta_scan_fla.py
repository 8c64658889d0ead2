"""The delta scan by flash-linear-attention's kernel: what we put around it, and the kernel in Triton's interpreter."""

import subprocess
import sys
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from types import ModuleType

import pytest
import torch
from test_delta_scan import draw_inputs
from torch import Tensor

from architectures.test_reference_layers import fla
from closeness import assert_twins
from recallscope.ops.delta_scan import delta_scan, delta_scan_loop
from recallscope.ops.delta_scan_fla import delta_scan_fla

KERNEL = "fla.ops.generalized_delta_rule.dplr.chunk"
VERSIONS = {"fla-core": "0.6.0", "triton": "3.9.0"}  # the pair whose interpreter the patches below fit


def drawn(N: int, P: int, decay: str, delta: bool) -> dict[str, Tensor]:
    return draw_inputs((2, 33, 2, N), P, decay, delta, seed=N)


@pytest.fixture
def reference_in_place_of_the_kernel(monkeypatch):
    """fla's plain twin of its kernel, which insists on the kernel's widths."""
    naive = fla("generalized_delta_rule/dplr/naive.py").dplr_recurrence

    def chunk_dplr_delta_rule(q, k, v, a, b, gk, *, scale):
        assert k.shape[-1] % 16 == v.shape[-1] % 16 == 0
        q, k, v, a, b, gk = (x.transpose(1, 2) for x in (q * scale * k.shape[-1] ** 0.5, k, v, a, b, gk))
        o, state = naive(q, k, v, a, b, gk)
        return o.transpose(1, 2), state

    for name in (KERNEL.rsplit(".", depth)[0] for depth in range(KERNEL.count("."), 0, -1)):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    module = ModuleType(KERNEL)
    module.chunk_dplr_delta_rule = chunk_dplr_delta_rule
    monkeypatch.setitem(sys.modules, KERNEL, module)


@pytest.mark.usefixtures("reference_in_place_of_the_kernel")
@pytest.mark.parametrize(
    ("N", "P", "decay", "delta"), [(5, 7, "channel", True), (16, 3, "head", False), (4, 32, "none", True)]
)
def test_padding_scale_and_logarithms_are_right(N: int, P: int, decay: str, delta: bool) -> None:
    assert_twins(delta_scan_fla, delta_scan_loop, drawn(N, P, decay, delta), dtype=torch.float32)


@pytest.mark.usefixtures("reference_in_place_of_the_kernel")
def test_a_decay_of_zero_forgets_everything() -> None:
    """All gradients but that by w."""
    inputs = drawn(4, 3, "channel", delta=True)
    w = inputs.pop("w").float()
    w[:, 5] = 0.0
    assert_twins(partial(delta_scan_fla, w=w), partial(delta_scan_loop, w=w), inputs, dtype=torch.float32)


@pytest.mark.skipif(find_spec("triton") is not None, reason="Triton is installed")
def test_without_triton_the_form_is_refused_with_the_remedy() -> None:
    with pytest.raises(RuntimeError, match=r"triton is not installed. Install recallscope\[gpu\], or use form='torch'"):
        delta_scan(**drawn(2, 2, "none", delta=False), form="fla")


INTERPRETED = """
import os, sys
os.environ["TRITON_INTERPRET"] = "1"
sys.path[:0] = ["tests", "tests/ops"]
import torch, triton.language as tl
from triton.runtime import interpreter
from triton.runtime.autotuner import Autotuner

run = Autotuner.run
def run_first(self, *arguments, **options):  # choosing among configurations would ask for a device
    self.configs = self.configs[:1]
    return run(self, *arguments, **options)
Autotuner.run = run_first

import fla.ops.generalized_delta_rule.dplr.chunk
def tensors(*bounds):  # kernels convert loop indices, which the interpreter leaves as integers
    return (interpreter._implicit_cvt(i) for i in range(*map(int, bounds)))
for name, module in list(sys.modules.items()):
    if name.startswith("fla.ops"):
        module.range = tensors
        if hasattr(module, "gather"):  # bound at import, before the interpreter has put its own in place
            module.gather = lambda *arguments, **options: tl.gather(*arguments, **options)

from closeness import assert_twins
from recallscope.ops.delta_scan import delta_scan_loop
from recallscope.ops.delta_scan_fla import delta_scan_fla
import test_delta_scan_fla
from test_delta_scan_fla import drawn
for case in ((5, 7, "channel", True), (16, 16, "head", False), (4, 3, "none", True)):
    assert_twins(delta_scan_fla, delta_scan_loop, drawn(*case), dtype=torch.float32)
test_delta_scan_fla.test_a_decay_of_zero_forgets_everything()
"""


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


@pytest.mark.slow
@pytest.mark.skipif(
    {package: installed(package) for package in VERSIONS} != VERSIONS, reason=f"needs exactly {VERSIONS}, without a GPU"
)
def test_the_kernel_in_tritons_interpreter_is_the_loop() -> None:
    done = subprocess.run([sys.executable, "-c", INTERPRETED], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; torch sees none")
@pytest.mark.parametrize("case", [(5, 7, "channel", True), (16, 16, "head", False), (64, 64, "none", True)])
def test_the_kernel_on_a_gpu_is_the_loop(case: tuple[int, int, str, bool]) -> None:
    """To tf32's ten bits, which Triton may multiply with."""
    inputs = {name: x.float().cuda() for name, x in drawn(*case).items()}
    o = delta_scan(**inputs, form="fla")
    assert (o - delta_scan_loop(**inputs)).abs().max() <= 2**-8 * o.abs().max()

"""Compiled kernels: their cache, where what is damaged or not ours is never opened; their arguments; life without a
compiler."""

import ctypes
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recallscope.ops import compiled, kernel_library
from recallscope.ops.compiled import library
from recallscope.ops.conv import ConvArguments
from recallscope.ops.delta_scan_compiled import DeltaArguments
from recallscope.ops.kernel_library import _compile, _fingerprint, cache_folder, find_compiler, open_library
from recallscope.ops.query_loss import SoftmaxArguments
from recallscope.ops.selective_scan_compiled import ScanArguments
from recallscope.ops.state_rounding import RoundArguments
from recallscope.ops.table_scan import TableScanArguments

NOBODY = 65534
OPEN = """
import pathlib, runpy, sys
module = runpy.run_path(sys.argv[1])  # alone, as the package would load torch first
open_library = module["open_library"]
open_library.__globals__["SOURCE"] = pathlib.Path(sys.argv[2])
print(open_library()[1])
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache and temporary folder, and a source that compiles at once."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "kernels.c").write_text("int answer(void) { return 42; }\n")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(kernel_library, "SOURCE", source)
    monkeypatch.setattr(kernel_library.tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.setenv("RECALLSCOPE_CACHE", str(tmp_path))
    return tmp_path / "recallscope"


@pytest.fixture
def builds(monkeypatch):
    """The folders in which something was compiled."""
    seen = []
    monkeypatch.setattr(kernel_library, "_compile", lambda *given: seen.append(given[1]) or _compile(*given))
    return seen


def build(folder: Path) -> Path:
    """A library that this process has not opened: damaging one that is mapped would end the process."""
    compiler = find_compiler()
    folder.mkdir(mode=0o700, exist_ok=True)
    return _compile(compiler, folder, f"kernels-{_fingerprint(compiler)}")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_sound_library_is_opened_without_a_compiler_run(folder, builds):
    path = build(folder)
    kernels, digest = open_library()
    assert kernels.answer() == 42
    assert path.name.endswith(f"-{digest}.so")
    assert builds == []
    assert folder.stat().st_mode & 0o777 == 0o700


def flip_one_bit(data: bytes) -> bytes:
    return data[:2000] + bytes([data[2000] ^ 1]) + data[2001:]


@pytest.mark.parametrize(
    "damage",
    [lambda data: data[: len(data) // 3], lambda data: bytes(len(data)), flip_one_bit, lambda data: b""],
    ids=["truncated", "zeroed", "one bit flipped", "empty"],
)
def test_a_damaged_library_is_built_again(folder, builds, caplog, damage):
    path = build(folder)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert open_library()[0].answer() == 42
    assert builds == [folder]
    assert path.read_bytes() == whole
    assert f"{path} is damaged" in caplog.text


def test_a_library_without_a_digest_is_not_opened(folder, builds):
    path = build(folder)
    path.rename(folder / f"{path.stem.rpartition('-')[0]}.so")
    assert open_library()[0].answer() == 42
    assert builds == [folder]


def others_may_write(path: Path) -> None:
    path.chmod(0o722)


def belongs_to_another(path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, NOBODY, -1)


@pytest.mark.parametrize("spoil", [others_may_write, belongs_to_another])
def test_a_library_that_others_could_have_put_there_is_built_again(folder, builds, spoil):
    path = build(folder)
    spoil(path)
    assert open_library()[0].answer() == 42
    assert builds == [folder]
    assert path.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_uid == os.getuid()


@pytest.mark.parametrize("spoil", [others_may_write, belongs_to_another])
@pytest.mark.parametrize("by_link", [False, True])
def test_a_folder_that_others_could_write_to_is_left_alone(folder, builds, caplog, spoil, by_link):
    caplog.set_level("INFO")
    target = folder.with_name("elsewhere") if by_link else folder
    before = build(target)
    if by_link:
        folder.symlink_to(target)
    spoil(target)
    assert open_library()[0].answer() == 42
    assert builds == [kernel_library.temporary_folder()]
    assert before.exists()
    assert f"kernels are not kept in {folder}" in caplog.text


def test_where_no_folder_is_safe_torch_computes_and_the_record_says_why(folder, monkeypatch):
    for unsafe in (folder, kernel_library.temporary_folder()):
        unsafe.mkdir()
        unsafe.chmod(0o777)
    with pytest.raises(OSError, match=r"mode 777: others may write.*chmod go-w.*Set RECALLSCOPE_CACHE"):
        open_library()
    compiled._opened.cache_clear()
    try:
        assert compiled.library() is None
        assert compiled.backend_name("cpu") == "torch (no folder for the compiled library)"
        compiled._opened.cache_clear()
        monkeypatch.setenv("CC", "'cc")
        assert compiled.backend_name("cpu") == 'torch (CC="\'cc" cannot be read: No closing quotation)'
    finally:
        monkeypatch.undo()
        compiled._opened.cache_clear()


def test_a_read_only_cache_compiles_once_per_machine(folder, builds):
    """A file stands where the folder should be, which stops root as well."""
    folder.write_bytes(b"")
    instead = kernel_library.temporary_folder()
    for _ in range(3):
        assert open_library()[0].answer() == 42
    assert builds.count(instead) == 1
    assert names(instead.parent) == [instead.name]
    assert instead.stat().st_mode & 0o777 == 0o700


def test_a_link_in_place_of_a_library_is_not_opened(folder, builds, caplog):
    path = build(folder)
    path.rename(folder.with_name(path.name))
    path.symlink_to(folder.with_name(path.name))
    assert open_library()[0].answer() == 42
    assert builds == [folder]
    assert not path.is_symlink()
    assert f"{path} is a link" in caplog.text


def test_a_folder_below_one_that_others_may_write_to_is_left_alone(tmp_path, folder, builds, monkeypatch):
    """They could put another in its place; unless the sticky bit keeps them from it."""
    (tmp_path / "shared" / "mine").mkdir(parents=True)
    (tmp_path / "shared").chmod(0o777)
    monkeypatch.setenv("RECALLSCOPE_CACHE", str(tmp_path / "shared" / "mine"))
    open_library()
    assert builds == [kernel_library.temporary_folder()]
    (tmp_path / "shared").chmod(0o1777)
    open_library()
    assert builds[1:] == [tmp_path / "shared" / "mine" / "recallscope"]


def test_several_processes_build_once(folder, tmp_path, monkeypatch):
    """Those that come later wait for the first, and open what it has built."""
    (tmp_path / "slow-cc").write_text(
        '#!/bin/sh\ncase "$*" in *version*) ;; *) echo x >> ../builds; sleep 1;; esac\nexec cc "$@"\n'
    )
    (tmp_path / "slow-cc").chmod(0o755)
    command = [sys.executable, "-c", OPEN, kernel_library.__file__, str(kernel_library.SOURCE)]
    several = [
        subprocess.Popen(command, env=os.environ | {"CC": str(tmp_path / "slow-cc")}, cwd=kernel_library.SOURCE)
        for _ in range(4)
    ]
    assert [process.wait(120) for process in several] == [0] * 4
    assert (tmp_path / "builds").read_text() == "x\n"


def test_what_killed_builders_left_is_cleared_away_after_a_while(folder):
    folder.mkdir(mode=0o700)
    old, new = folder / ".building-old.so", folder / ".building-new.so"
    old.touch()
    new.touch()
    hours_ago = time.time() - 2 * kernel_library.STALE_SECONDS
    os.utime(old, (hours_ago, hours_ago))
    path = build(folder)
    assert names(folder) == [".building-new.so", path.name]


def test_a_failed_build_leaves_nothing(folder):
    (kernel_library.SOURCE / "kernels.c").write_text("this is not C\n")
    with pytest.raises(RuntimeError, match=r"could not compile"):
        open_library()
    assert names(folder) == []


def test_processes_may_build_at_once(folder):
    """All open the same whole library; nothing half-written is left behind, nor among temporary files."""
    temporary = folder.with_name("temporary")
    command = [sys.executable, "-c", OPEN, kernel_library.__file__, str(kernel_library.SOURCE)]
    several = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(temporary)})
        for _ in range(3)
    ]
    said = {process.communicate(timeout=120)[0].strip() for process in several}
    (library,) = names(folder)
    assert said == {library.rpartition("-")[2].removesuffix(".so")}
    assert names(temporary) == []


def test_flags_asked_for_are_used_and_are_another_library(folder, monkeypatch):
    before = build(folder)
    (kernel_library.SOURCE / "kernels.c").write_text("int answer(void) { return ANSWER; }\n")
    monkeypatch.setenv("RECALLSCOPE_CFLAGS", "-DANSWER=7 -g0")
    assert open_library()[0].answer() == 7
    monkeypatch.setenv("RECALLSCOPE_CFLAGS", "-DANSWER=8")
    assert open_library()[0].answer() == 8
    assert len(names(folder)) == 3
    assert before.name in names(folder)


def test_the_record_names_the_form_of_scan_that_was_asked_for(monkeypatch):
    monkeypatch.delenv("RECALLSCOPE_SCAN", raising=False)
    plain = compiled.backend_name("cpu")
    monkeypatch.setenv("RECALLSCOPE_SCAN", "torch")
    assert compiled.backend_name("cpu") == f"{plain}, RECALLSCOPE_SCAN=torch"
    assert compiled.backend_name("cuda:1") == "torch (on cuda), RECALLSCOPE_SCAN=torch"


def test_the_cache_has_three_possible_homes(monkeypatch):
    monkeypatch.setenv("RECALLSCOPE_CACHE", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert cache_folder() == Path("/a/recallscope")
    monkeypatch.delenv("RECALLSCOPE_CACHE")
    assert cache_folder() == Path("/b/recallscope")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "recallscope"


def test_it_was_built() -> None:
    assert library() is not None, "most tests of ops need a C compiler; `log` says what is wrong with this one"


STRUCTURES = {
    "scan": ScanArguments, "conv": ConvArguments, "table_scan": TableScanArguments, "softmax": SoftmaxArguments,
    "delta": DeltaArguments, "round": RoundArguments,
}  # fmt: skip


@pytest.mark.parametrize(("name", "structure"), STRUCTURES.items())
def test_c_and_python_mean_the_same_structure(name: str, structure: type[ctypes.Structure]) -> None:
    size = getattr(library(), f"{name}_arguments_size")
    size.restype = ctypes.c_int64
    assert size() == ctypes.sizeof(structure)


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ, **environment}
    )


def test_a_forked_child_can_scan_too() -> None:
    """Threads of ours live for one call: none is missed after a fork."""
    run_python(
        "import os, torch\n"
        "from recallscope.ops.selective_scan_compiled import selective_scan_compiled\n"
        "torch.set_num_threads(2)\n"
        "x, B = torch.ones(8, 64, 64), torch.ones(8, 64, 8)\n"
        "before = selective_scan_compiled(x, x, -torch.ones(64, 8), B, B)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    same = torch.equal(before, selective_scan_compiled(x, x, -torch.ones(64, 8), B, B))\n"
        "    os._exit(0 if same else 1)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
    )


REPORT = (
    "import logging, torch\n"
    "logging.basicConfig(level=logging.INFO, format='%(levelname)s %(message)s')\n"
    "torch.set_num_threads(1)\n"
    "from recallscope.ops.selective_scan import selective_scan\n"
    "x = torch.ones(1, 3, 2)\n"
    "for _ in range(2):\n"
    "    print(selective_scan(x, x, -torch.ones(2, 4), torch.ones(1, 3, 4), torch.ones(1, 3, 4))[0, :, 0].tolist())\n"
)


@pytest.mark.parametrize(
    "surroundings",
    [{"PATH": "", "CC": ""}, {"CC": "no-such-compiler"}, {"CC": "false"}],
    ids=["no compiler", "one that is not there", "one that fails"],
)
def test_without_a_compiler_torch_computes_and_the_log_says_so_once(
    tmp_path: Path, surroundings: dict[str, str]
) -> None:
    done = run_python(REPORT, **surroundings, RECALLSCOPE_CACHE=str(tmp_path))
    first, second = done.stdout.splitlines()
    assert first == second
    assert first.startswith("[4.0, 5.47")
    assert done.stderr.count("WARNING compiled kernels are not available, torch computes instead") == 1
    assert done.stderr.count("INFO selective scan: recallscope's torch form") == 1


def test_forcing_it_without_a_compiler_says_what_to_do(tmp_path: Path) -> None:
    code = REPORT + "selective_scan(x, x, -torch.ones(2, 4), torch.ones(1, 3, 4), torch.ones(1, 3, 4), form='compiled')"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run_python(code, PATH="", CC="", RECALLSCOPE_CACHE=str(tmp_path))
    assert "Use form='torch', or install gcc or clang" in caught.value.stderr

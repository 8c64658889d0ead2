"""`recallscope doctor`: what is installed here, and does it work? For bug reports."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recallscope import __version__
from recallscope.cli.output import print_json
from recallscope.registry import GROUPS, PLUGINS

CORE = "core"  # what is needed without any extra
_VARIABLES = re.compile(r"RECALLSCOPE_.*|OMP_NUM_THREADS|MKL_NUM_THREADS|CUDA_VISIBLE_DEVICES|CC|XDG_CACHE_HOME")


@dataclass(kw_only=True)
class Doctor:
    """Check the installation.

    recallscope doctor

    Prints what is installed in which version, which extras are missing, whether the compiled kernels load and agree
    with torch, and compiler, threads, devices and cache folder. Paste it into a bug report. The exit code is 1 if
    something is broken.
    """

    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Look, and print."""
        facts = installation()
        if self.json:
            print_json(facts)
        else:
            for name, text in _lines(facts):
                print(f"{name:<13}{text}".rstrip())
        return 1 if facts["problems"] else 0


def installation() -> dict[str, Any]:
    """Everything `doctor` says, as plain values; paths under the home folder begin with ~."""
    needed = _requirements()
    extras = {extra: _extra(extra, packages) for extra, packages in sorted(needed.items()) if extra != "all"}
    problems = [f"{CORE}: {fault}" for fault in extras.get(CORE, {}).get("missing", [])]
    if not needed:
        problems.append("recallscope itself is not installed, only found on the path: dependencies are unknown.")
    facts: dict[str, Any] = {
        "recallscope": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "location": _short(Path(__file__).parents[1]),
        "extras": extras,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "torch": None,
        "environment": {name: value for name, value in sorted(os.environ.items()) if _VARIABLES.fullmatch(name)},
        "plugins": _plugins(),
    }
    if find_spec("torch"):
        try:
            facts["torch"] = _torch()
            if facts["torch"]["kernels_agree"] is False:
                problems.append("the compiled kernels give other numbers than torch: delete the cache folder.")
        except Exception as error:  # a broken installation raises anything
            problems.append(f"torch is installed but does not work, {type(error).__name__}: {error}")
    return facts | {"problems": problems}


def _requirements() -> dict[str, list[tuple[str, str]]]:
    """Packages with their version rules, by extra; nothing if recallscope has no metadata here."""
    found: dict[str, list[tuple[str, str]]] = {}
    with suppress(PackageNotFoundError):
        for text in distribution("recallscope").requires or ():
            rule, _, marker = text.partition(";")
            name, bounds = re.match(r"([\w.-]+)(?:\[.*\])?(.*)", rule.strip()).groups()  # type: ignore[union-attr]
            extra = re.search(r"extra == ['\"]([\w-]+)", marker)
            found.setdefault(extra[1] if extra else CORE, []).append((name, bounds.strip()))
    return found


def _extra(extra: str, packages: list[tuple[str, str]]) -> dict[str, Any]:
    """What an extra has here, what it lacks, and the line that installs it."""
    versions, missing = {}, []
    for name, bounds in sorted(packages):
        try:
            versions[name] = version(name)
            if not _meets(versions[name], bounds):
                missing.append(f"{name}{bounds} (this is {versions[name]})")
        except PackageNotFoundError:
            missing.append(f"{name}{bounds}")
    wanted = "recallscope" if extra == CORE else f"recallscope[{extra}]"
    return {"versions": versions, "missing": missing, "install": f"pip install '{wanted}'" if missing else None}


def _meets(found: str, bounds: str) -> bool:
    """Whether a version is within bounds such as `<3,>=2.7`."""
    return all(
        (_release(found) < _release(bound)) == (sign == "<") for sign, bound in re.findall(r"(>=|<)([\d.]+)", bounds)
    )


def _release(text: str) -> tuple[int, ...]:
    """(2, 13, 0) of 2.13.0+cpu."""
    return tuple(int(part) for part in re.split(r"[^\d.]", text)[0].split(".") if part)


def _torch() -> dict[str, Any]:
    """What torch has to compute with, and whether our kernels agree with it."""
    import torch

    from recallscope.ops.compiled import backend_name, library
    from recallscope.ops.delta_scan_fla import fla_missing
    from recallscope.ops.kernel_library import cache_folder, find_compiler

    try:
        command = find_compiler()
        printed = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False, timeout=10)  # noqa: S603
        compiler = f"{' '.join(command)}: {(printed.stdout.splitlines() or ['does not say its version'])[0]}"
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        compiler = str(error)
    folder = cache_folder()
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    return {
        "version": torch.__version__,
        "threads": torch.get_num_threads(),
        "devices": [
            "cpu",
            *(f"cuda:{index} {torch.cuda.get_device_name(index)}" for index in range(torch.cuda.device_count())),
            *(["mps"] if torch.backends.mps.is_available() else []),
        ],
        "kernels": backend_name("cpu"),
        "cuda_kernels": {
            "delta scan": f"torch ({missing})" if (missing := fla_missing()) else "flash-linear-attention (Triton)",
            "selective scan": "mamba-ssm" if find_spec("mamba_ssm") else "torch (mamba-ssm is not installed)",
        },
        "kernels_agree": library() and _kernels_agree(),
        "compiler": compiler,
        "cache": _short(folder),
        "cache_writable": os.access(nearest, os.W_OK),
    }


def _kernels_agree() -> bool:
    """One small scan by the compiled kernel and by its plain twin."""
    import torch

    from recallscope.ops.delta_scan import delta_scan_loop
    from recallscope.ops.delta_scan_compiled import delta_scan_compiled

    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 5, 1, 3, generator=draw, dtype=torch.float64) for _ in range(3))
    return torch.allclose(delta_scan_compiled(q, k, v), delta_scan_loop(q, k, v))


def _plugins() -> list[str]:
    """Other packages' laws, tasks and architectures, and the files named in the environment; none is imported."""
    points = [point.value for group in GROUPS for point in entry_points(group=group)]
    return points + [name for name in os.environ.get(PLUGINS, "").split(os.pathsep) if name]


def _short(path: Path) -> str:
    """With ~ for the home folder: a bug report need not say who you are."""
    with suppress(ValueError, RuntimeError):
        return f"~/{path.relative_to(Path.home())}"
    return str(path)


def _lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The same in words, a name and a text a line."""
    yield "recallscope", f"{facts['recallscope']} in {facts['location']}"
    yield "python", f"{facts['python']} on {facts['platform']}"
    extras = facts["extras"]
    versions = {name: number for found in extras.values() for name, number in found["versions"].items()}
    yield "packages", ", ".join(f"{name} {number}" for name, number in sorted(versions.items()))
    yield "extras", ", ".join(extra for extra, found in extras.items() if not found["missing"]) or "none"
    for extra, found in extras.items():
        if found["missing"]:
            yield "missing", f"{extra}: {', '.join(found['missing'])}; {found['install']}"
    if torch := facts["torch"]:
        yield "kernels", torch["kernels"] + (", agree with torch" if torch["kernels_agree"] else "")
        yield "on CUDA", "; ".join(f"{scan}: {who}" for scan, who in torch["cuda_kernels"].items())
        yield "compiler", torch["compiler"]
        yield "cache", f"{torch['cache']}{'' if torch['cache_writable'] else ' (not writable)'}"
        yield "devices", ", ".join(torch["devices"])
        yield "threads", f"{torch['threads']} of torch, {facts['cores']} cores"
    else:
        yield "threads", f"{facts['cores']} cores; models and compiled kernels need the extra torch"
    yield "environment", ", ".join(f"{name}={value}" for name, value in facts["environment"].items()) or "nothing set"
    yield "plugins", ", ".join(facts["plugins"]) or "none"
    yield "problems", "; ".join(facts["problems"]) or "none"

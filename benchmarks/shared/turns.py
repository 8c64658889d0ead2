"""How the benchmarks measure: contenders take turns in one process, and medians of its CPU time are compared.

What else runs on the machine slows all of them alike.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch

KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "2000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}
Work = Callable[[], object]


def medians(ways: Mapping[str, Work], rounds: int, warm_ups: int = 1) -> dict[str, float]:
    """Milliseconds of each way; the first rounds do not count."""
    times: dict[str, list[float]] = {way: [] for way in ways}
    for round_number in range(warm_ups + rounds):
        for way, work in ways.items():
            began = time.process_time()
            work()
            if round_number >= warm_ups:
                times[way].append(1e3 * (time.process_time() - began))
    return {way: median(values) for way, values in times.items()}


def added_peak(tiny: Callable[[], Work], make: Callable[[], Work]) -> float:
    """MB that one pass adds to this process; a tiny pass comes first, as libraries grow at first use."""
    tiny()()
    work = make()
    before = _high_water()
    work()
    return round((_high_water() - before) / 1024, 1)


def _high_water() -> int:
    """kB; getrusage would start from what the parent process had."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def with_memory_given_back_and_kept(
    about: str | None,
    rounds: int,
    measure: Callable[[int], list[dict[str, Any]]],
    line: Callable[[dict[str, Any]], str],
) -> None:
    """A whole benchmark: `measure` makes rows, `line` tells one.

    glibc hands large temporaries back to the system after each operation, so the script runs itself once as it is and
    once with glibc told to keep them, as sweeps do.
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=rounds, help="turns of each way")
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error(f"--rounds {options.rounds}: at least one turn is needed")
    torch.set_num_threads(1)
    if options.inner:
        print(json.dumps(measure(options.rounds)))
        return
    command = [sys.executable, sys.argv[0], "--inner", "--rounds", str(options.rounds)]
    results = {}
    for label, extra in (("as glibc comes", {}), ("memory kept", KEEP_MEMORY)):
        done = subprocess.run(command, env=os.environ | extra, capture_output=True, text=True, check=True)
        results[label] = json.loads(done.stdout)
    if options.json:
        print(json.dumps({"load": os.getloadavg()[0], "threads": 1, **results}))
        return
    print(f"one thread, load of the machine {os.getloadavg()[0]:.1f}")
    for label, rows in results.items():
        for row in rows:
            print(f"{label:15} {line(row)}")

"""`make demo`: what the task looks like, how large a model it needs, and accuracy over the dimensions D and N, predicted,
hand-constructed and trained here and now. Each step is a command you can run yourself."""

import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

OUT = Path("demo-output")
STEPS = [  # what it shows, its estimated duration on two idle cores, the command
    (
        "The task: facts (key-value pairs), then queries",
        "3 s",
        "recallscope sample --vocab-size 64 --num-facts 4 --num-sequences 1 --seed 0",
    ),
    (
        "The state size you need for 99% accuracy, by our law",
        "2 s",
        "recallscope size --target 0.99 --vocab-size 512 --num-facts 16 --embed-dim 48",
    ),
    (
        "Accuracy over D and N: predicted by laws, hand-constructed, trained",
        "1 min",
        f"recallscope reproduce dn-grid --scale quick --store {OUT}",
    ),
]


def main() -> int:
    """Print and run each command. Results of an earlier demo are deleted first."""
    shutil.rmtree(OUT, ignore_errors=True)
    print("Three steps, with estimated durations on two otherwise idle cores:")
    for number, (title, duration, _) in enumerate(STEPS, 1):
        print(f"{number}  {duration:>5}  {title}")
    began = time.monotonic()
    for number, (title, _, command) in enumerate(STEPS, 1):
        print(f"\n[{number}/{len(STEPS)}] {title}\n$ {command}\n", flush=True)
        arguments = shlex.split(command)[1:]
        done = subprocess.run([sys.executable, "-m", "recallscope.cli.main", *arguments], check=False)
        if done.returncode:
            return done.returncode
    print(f"\nDone in {time.monotonic() - began:.0f} s. The four grids as a picture: {OUT / 'figures' / 'fig-7.png'}")
    print("Other experiments: recallscope reproduce --list")
    return 0


if __name__ == "__main__":
    sys.exit(main())

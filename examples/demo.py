"""`make demo`: the task, then the paper's first figure in small: what the laws predict, what a circuit written down
as weights does, and what models learn that are trained here and now. Each step is a command you can run yourself."""

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

OUT = Path("demo-output")
STEPS = [
    (
        "What does the task look like? Facts, then questions.",
        "recallscope sample --task mqar --vocab-size 64 --num-facts 4 --num-examples 1 --seed 0",
    ),
    (
        "Recall over the dimensions D and N: predicted, designed, and trained (14 models, about a minute on two cores).",
        f"recallscope reproduce dn-grid --scale quick --store {OUT}/store --out {OUT}",
    ),
    (
        "What do I need for 99 %?",
        "recallscope size --target 0.99 --vocab-size 512 --num-facts 16 --embed-dim 48",
    ),
]


def main() -> int:
    """Show each command, then run it; what an earlier demo trained is trained anew."""
    shutil.rmtree(OUT, ignore_errors=True)
    for says, command in STEPS:
        print(f"\n# {says}\n$ {command}\n", flush=True)
        words = shlex.split(command)
        done = subprocess.run([sys.executable, "-m", "recallscope.cli.main", *words[1:]], check=False)
        if done.returncode:
            return done.returncode
    print(f"\nThe figure: {OUT / 'fig-7.png'}. What else the paper shows: recallscope reproduce --list")
    return 0


if __name__ == "__main__":
    sys.exit(main())

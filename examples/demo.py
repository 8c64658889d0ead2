"""`make demo`: the main job end to end, in a terminal. Each step is a command you can run yourself."""

import shlex
import subprocess
import sys

STEPS = [
    (
        "What does the task look like? Facts, then questions.",
        "recallscope sample --task mqar --vocab-size 64 --num-facts 4 --num-examples 1 --seed 0",
    ),
    (
        "How likely is recall with these dimensions?",
        "recallscope predict --task mqar --vocab-size 512 --num-facts 16 --embed-dim 16 32 48 64 --state-dim 8 16 24 32",
    ),
    (
        "What do I need for 99 %?",
        "recallscope size --target 0.99 --vocab-size 512 --num-facts 16 --embed-dim 48",
    ),
    (
        "A circuit written down as weights, beside what its law predicts.",
        "recallscope design --circuit compressive --vocab-size 512 --num-facts 16 --embed-dim 64 --state-dim 32 --draws 20",
    ),
    (
        "A model that learns it, beside what the laws predict for trained models.",
        "recallscope train --preset dn-linear --embed-dim 32 --state-dim 8 --batch-size 32 --eval-size 1000",
    ),
]


def main() -> int:
    """Show each command, then run it."""
    for says, command in STEPS:
        print(f"\n# {says}\n$ {command}\n", flush=True)
        words = shlex.split(command)
        done = subprocess.run([sys.executable, "-m", "recallscope.cli.main", *words[1:]], check=False)
        if done.returncode:
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())

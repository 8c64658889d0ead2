"""`recallscope VERB`: one file per verb, heavy imports after parsing, every mistake answered in one paragraph."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import tyro

from recallscope.cli.claims import Claims
from recallscope.cli.design import Design
from recallscope.cli.errors import explain
from recallscope.cli.evaluate import Evaluate
from recallscope.cli.laws import Laws
from recallscope.cli.predict import Predict
from recallscope.cli.sample import Sample
from recallscope.cli.size import Size
from recallscope.cli.train import Train

Verb = (
    Annotated[Predict, tyro.conf.subcommand("predict", prefix_name=False)]
    | Annotated[Size, tyro.conf.subcommand("size", prefix_name=False)]
    | Annotated[Sample, tyro.conf.subcommand("sample", prefix_name=False)]
    | Annotated[Design, tyro.conf.subcommand("design", prefix_name=False)]
    | Annotated[Train, tyro.conf.subcommand("train", prefix_name=False)]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate", prefix_name=False)]
    | Annotated[Laws, tyro.conf.subcommand("laws", prefix_name=False)]
    | Annotated[Claims, tyro.conf.subcommand("claims", prefix_name=False)]
)

DESCRIPTION = """How much can a recurrent sequence model remember, and why?

Try: recallscope predict --task mqar --vocab-size 1024 --num-facts 16 --embed-dim 64 --state-dim 16
Each verb has its own --help that opens with a line to paste, and takes --json."""


def main(argv: list[str] | None = None) -> int:
    """Parse, run, and turn every foreseeable mistake into exit code 2 and a paragraph on stderr."""
    arguments = sys.argv[1:] if argv is None else argv
    try:
        verb = tyro.cli(
            Verb,
            prog="recallscope",
            description=DESCRIPTION,
            args=arguments or ["--help"],
            config=(tyro.conf.FlagCreatePairsOff,),
        )
        return int(verb.run())
    except BrokenPipeError:  # the reader of our pipe has left; nothing to say, and nobody to say it to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("recallscope: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if os.environ.get("RECALLSCOPE_TRACEBACK"):
            raise
        text, code = explain(error)
        print(f"recallscope: {text}", file=sys.stderr)
        return code


if __name__ == "__main__":
    sys.exit(main())

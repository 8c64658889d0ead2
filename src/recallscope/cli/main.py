"""`recallscope VERB`: one file per verb, imported when it is asked for; every mistake is answered in one paragraph."""

from __future__ import annotations

import os
import sys
from importlib import import_module

from recallscope import __version__
from recallscope.registry import suggestion

VERBS = {
    "predict": ("predict:Predict", "how likely is recall with these dimensions?"),
    "size": ("size:Size", "which dimensions do I need?"),
    "sample": ("sample:Sample", "look at the task, token by token"),
    "design": ("design:Design", "write a recall circuit down as weights, and measure it"),
    "train": ("train:Train", "train one model, published or your own"),
    "evaluate": ("evaluate:Evaluate", "accuracy of weights on disk"),
    "inspect": ("inspect:Inspect", "look inside: operators, hash table, attention, surgery"),
    "sweep": ("sweep:Sweep", "run a grid; stop and resume at any time"),
    "store": ("store:Store", "list, show, export, verify what sweeps left behind"),
    "fit": ("fit:FitStore", "fit the law to measured runs, and compare all laws"),
    "reproduce": ("reproduce:Reproduce", "run an experiment of the paper, draw it, say what came out"),
    "draw": ("draw:Draw", "the paper's figures, from a store of runs"),
    "report": ("report:WriteReport", "what the runs say about the paper, as one page"),
    "laws": ("laws:Laws", "the catalogue of laws"),
    "claims": ("claims:Claims", "the paper's statements, and how each is held up"),
}

OVERVIEW = f"""usage: recallscope VERB ...

How much can a recurrent sequence model remember, and why? Try:

recallscope predict --task mqar --vocab-size 1024 --num-facts 16 --embed-dim 64 --state-dim 16

{chr(10).join(f"  {verb:10}{says}" for verb, (_, says) in VERBS.items())}

recallscope VERB --help opens with a line to paste. Every verb takes --json and then prints one JSON object."""


def main(argv: list[str] | None = None) -> int:
    """Parse, run, and turn every foreseeable mistake into exit code 2 and a paragraph on stderr."""
    arguments = sys.argv[1:] if argv is None else argv
    first = arguments[0] if arguments else "--help"
    if first in ("-h", "--help"):
        print(OVERVIEW)
        return 0
    if first == "--version":
        print(f"recallscope {__version__}")
        return 0
    if first not in VERBS:
        print(f"recallscope: {first!r} is not a verb. {suggestion(first, VERBS)}", file=sys.stderr)
        return 2
    try:
        return _run(first, arguments[1:])
    except BrokenPipeError:  # the reader of our pipe has left; nothing to say, and nobody to say it to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("recallscope: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if os.environ.get("RECALLSCOPE_TRACEBACK"):
            raise
        from recallscope.cli.errors import explain

        text, code = explain(error)
        print(f"recallscope: {text}", file=sys.stderr)
        return code


def _run(name: str, arguments: list[str]) -> int:
    import tyro

    module_name, kind = VERBS[name][0].split(":")
    module = import_module(f"recallscope.cli.{module_name}")
    # a verb whose flags follow from a spec says which class it has for these arguments
    chosen = module.verb_for(arguments) if hasattr(module, "verb_for") else getattr(module, kind)
    verb = tyro.cli(chosen, prog=f"recallscope {name}", args=arguments, config=(tyro.conf.FlagCreatePairsOff,))
    return int(verb.run())


if __name__ == "__main__":
    sys.exit(main())

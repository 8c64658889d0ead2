"""`recallscope VERB`: one file per verb, imported when it is asked for; every mistake is answered in one paragraph."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from recallscope import __version__
from recallscope.registry import suggestion

COMMANDS = {
    "predict": ("predict:Predict", "how likely is recall with these dimensions?"),
    "size": ("size:Size", "which dimensions do I need?"),
    "sample": ("sample:Sample", "look at the task, token by token"),
    "design": ("design:Design", "write a recall circuit down as weights, and measure it"),
    "train": ("train:Train", "train one model, published or your own"),
    "measure": ("measure:Measure", "any model or weights, yours too: recall, state, bits, place among others"),
    "capacity": ("capacity:FindCapacity", "how many facts does a trained model hold? few trainings"),
    "probe": ("probe:ProbeCheckpoint", "how many facts does a language model on disk hold?"),
    "inspect": ("inspect:Inspect", "look inside: operators, hash table, attention, surgery"),
    "sweep": ("sweep:Sweep", "run a grid; stop and resume at any time"),
    "store": ("store:Store", "list, show, export, verify what sweeps left behind"),
    "fit": ("fit:FitStore", "fit the law to measured runs, and compare all laws"),
    "plot": ("plot:Plot", "any two columns of a store against each other"),
    "reproduce": ("reproduce:Reproduce", "run an experiment of the paper, draw it, say what came out"),
    "draw": ("figures:Draw", "the paper's figures, from a store of runs"),
    "report": ("report:WriteReport", "what the runs say about the paper, as one page"),
    "explore": ("explore:Explore", "laws, runs and models in a page of your browser"),
    "laws": ("laws:Laws", "the catalogue of laws"),
    "claims": ("claims:Claims", "the paper's statements, and how each is held up"),
    "doctor": ("doctor:Doctor", "what is installed here, and does it work? for bug reports"),
}

OVERVIEW = f"""usage: recallscope VERB ...

How much can a recurrent sequence model remember, and why? Try:

recallscope predict --task mqar --vocab-size 1024 --num-facts 16 --embed-dim 64 --state-dim 16

{chr(10).join(f"  {verb:12}{says}" for verb, (_, says) in COMMANDS.items())}

recallscope help VERB (or VERB --help) opens with a line to paste; recallscope --version (-V) says which one this is.
A verb with an answer takes --json and then prints one JSON object. Mistakes are answered in a sentence;
RECALLSCOPE_TRACEBACK=1 in the environment shows where in the code it was raised."""


def main(argv: list[str] | None = None) -> int:
    """Parse, run, and turn every foreseeable mistake into exit code 2 and a paragraph on stderr."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["help"]:  # help VERB is VERB --help
        arguments = [*arguments[1:], "--help"]
    first = arguments[0] if arguments else "--help"
    if first in ("-h", "--help"):
        print(OVERVIEW)
        return 0
    if first in ("-V", "--version"):
        print(f"recallscope {__version__}")
        return 0
    if first not in COMMANDS:
        print(f"recallscope: {first!r} is not a verb. {suggestion(first, COMMANDS)}", file=sys.stderr)
        return 2
    try:
        return _run(first, arguments[1:])
    except BrokenPipeError:  # the reader of our pipe has left; nothing to say, and nobody to say it to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt as stop:
        print(f"recallscope: {str(stop) or 'interrupted'}", file=sys.stderr)
        return 130
    except Exception as error:
        if os.environ.get("RECALLSCOPE_TRACEBACK"):
            raise
        from recallscope.faults import explain

        fault = explain(error)
        where = " RECALLSCOPE_TRACEBACK=1 in the environment shows where." if fault.exit_code == 1 else ""
        print(f"recallscope: {fault.sentence}{where}", file=sys.stderr)
        return fault.exit_code


def _run(name: str, arguments: list[str]) -> int:
    import tyro

    config = (tyro.conf.FlagCreatePairsOff, tyro.conf.DisallowNone)
    verb = tyro.cli(command_class(name, arguments), prog=f"recallscope {name}", args=arguments, config=config)
    return int(verb.run())


def command_class(name: str, arguments: list[str]) -> type[Any]:
    """The class of a verb; one whose flags follow from a spec says which class it has for these arguments."""
    module_name, kind = COMMANDS[name][0].split(":")
    module = import_module(f"recallscope.cli.{module_name}")
    chosen: type[Any] = module.command_for(arguments) if hasattr(module, "command_for") else getattr(module, kind)
    return chosen


if __name__ == "__main__":
    sys.exit(main())

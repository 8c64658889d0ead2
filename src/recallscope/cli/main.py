"""`recallscope COMMAND`: one file each, imported when it is asked for; every mistake is answered in one paragraph."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from recallscope import __version__
from recallscope.registry import suggestion

GROUPS = {  # of the overview: command, its class, and what it is for
    "Predict": {
        "predict": ("predict:Predict", "the accuracy to expect of these dimensions"),
        "size": ("size:Size", "the smallest dimensions for a wanted accuracy"),
        "laws": ("laws:Laws", "the catalogue of laws"),
    },
    "Models": {
        "train": ("train:Train", "train one model, published or your own"),
        "measure": ("measure:Measure", "accuracy, state size and bits of any model or weights, beside others"),
        "capacity": ("capacity:FindCapacity", "the number of facts a trained model holds, in few training runs"),
        "inspect": ("inspect:Inspect", "look inside: operators, hash table, attention, causal interventions"),
        "sample": ("sample:Sample", "look at a task, token by token"),
        "design": ("design:Design", "construct a recall circuit by hand, as weights, and measure it"),
        "probe": ("probe:ProbeCheckpoint", "the number of facts a local language model holds in context"),
    },
    "Experiments": {
        "sweep": ("sweep:Sweep", "run a grid; stop and resume at any time"),
        "store": ("store:Store", "list, show, export and verify stored runs"),
        "fit": ("fit:FitStore", "fit the law to measured runs, and compare all laws"),
        "plot": ("plot:Plot", "any two columns of a store against each other"),
        "explore": ("explore:Explore", "laws, runs and models in your browser"),
    },
    "Reproduce": {
        "reproduce": ("reproduce:Reproduce", "run an experiment of the paper, draw it, compare"),
        "figures": ("figures:Figures", "the paper's figures, from a store of runs"),
        "report": ("report:WriteReport", "what the runs show about the paper, as one page"),
        "compare-grids": ("compare_grids:CompareGrids", "the authors' accuracy grids (.npy) against every law"),
        "claims": ("claims:Claims", "every claim of the paper, with its test and status"),
    },
    "Setup": {"doctor": ("doctor:Doctor", "what is installed here, and whether it works; for bug reports")},
}
COMMANDS = {name: entry for group in GROUPS.values() for name, entry in group.items()}


def overview() -> str:
    """What `recallscope --help` prints."""
    lines = [
        "usage: recallscope COMMAND ...",
        "",
        "How much can a recurrent sequence model remember, and why? Try:",
        "",
        "recallscope predict --task mqar --vocab-size 1024 --num-facts 16 --embed-dim 64 --state-dim 16",
    ]
    for title, group in GROUPS.items():
        lines += ["", title, *(f"  {name:15}{purpose}" for name, (_, purpose) in group.items())]
    return (
        "\n".join(lines)
        + """

recallscope help COMMAND (or COMMAND --help) opens with a line to paste; recallscope --version (-V) prints the version.
Commands that return results take --json and then print one JSON object. Mistakes are answered in a sentence;
RECALLSCOPE_TRACEBACK=1 in the environment shows where in the code they were raised."""
    )


def main(argv: list[str] | None = None) -> int:
    """Parse, run, and turn every foreseeable mistake into exit code 2 and a paragraph on stderr."""
    arguments = sys.argv[1:] if argv is None else argv
    if arguments[:1] == ["help"]:  # help COMMAND is COMMAND --help
        arguments = [*arguments[1:], "--help"]
    first = arguments[0] if arguments else "--help"
    if first in ("-h", "--help"):
        print(overview())
        return 0
    if first in ("-V", "--version"):
        print(f"recallscope {__version__}")
        return 0
    if first not in COMMANDS:
        print(f"recallscope: unknown command {first!r}. {suggestion(first, COMMANDS)}", file=sys.stderr)
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
    command = tyro.cli(command_class(name, arguments), prog=f"recallscope {name}", args=arguments, config=config)
    return int(command.run())


def command_class(name: str, arguments: list[str]) -> type[Any]:
    """The class of a command; one whose flags follow from a spec says which class it has for these arguments."""
    module_name, kind = COMMANDS[name][0].split(":")
    module = import_module(f"recallscope.cli.{module_name}")
    chosen: type[Any] = module.command_for(arguments) if hasattr(module, "command_for") else getattr(module, kind)
    return chosen


if __name__ == "__main__":
    sys.exit(main())

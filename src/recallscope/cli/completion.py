"""`recallscope completion`: a script that completes verbs, flags and names in a shell."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

from recallscope.cli.flags import Names
from recallscope.cli.main import VERBS, verb_class
from recallscope.specs import ARCHITECTURES, TASKS

# so that bash offers files where the script knows nothing, as for the folder of a store; and no flag is called required
CHANGES = (
    ("\ncomplete -F ", "\ncomplete -o default -F "),
    ('    matches+=("$completion")\n', '    if [[ -n "$completion" ]]; then matches+=("$completion"); fi\n'),
    (" • (required)", ""),
    (" (required)", ""),
)


@dataclass(kw_only=True)
class Completion:
    """recallscope completion bash

    Print a script for your shell. For this shell: source <(recallscope completion bash). For every new one, write it
    to a file once:

    bash: ~/.local/share/bash-completion/completions/recallscope

    zsh: ~/.zfunc/_recallscope, with ~/.zfunc in fpath before compinit

    fish: ~/.config/fish/completions/recallscope.fish

    It knows the tasks, architectures, presets and circuits of now: write it again after installing a plugin.
    """

    shell: Annotated[Literal["bash", "zsh", "fish"], tyro.conf.Positional]
    """Your shell."""

    def run(self) -> int:
        """Let tyro write the script for all verbs together."""
        script = io.StringIO()
        with contextlib.redirect_stdout(script), contextlib.suppress(SystemExit):
            tyro.extras.subcommand_cli_from_dict(
                {verb: completed(verb) for verb in VERBS},
                prog="recallscope",
                args=["--tyro-print-completion", self.shell],
                config=(tyro.conf.FlagCreatePairsOff,),
            )
        text = script.getvalue()
        for theirs, ours in CHANGES:
            text = text.replace(theirs, ours)
        print(text)
        return 0


def completed(verb: str) -> type[Any]:
    """A verb with the flags of all tasks and architectures, and with names where a flag takes some."""
    kinds = [["--task", name] for name in TASKS.names()] + [["--model", name] for name in ARCHITECTURES.names()]
    fields: dict[str, Any] = {}
    for chosen in dict.fromkeys(verb_class(verb, kind) for kind in kinds):
        hints = get_type_hints(chosen, include_extras=True)
        fields = {name: _with_names(hint) for name, hint in hints.items() if name in _names(chosen)} | fields
    typed = [(name, hint, _start(hint)) for name, hint in fields.items()]
    return dataclasses.make_dataclass(verb, typed, kw_only=True)


def _names(verb: type[Any]) -> set[str]:
    return {field.name for field in dataclasses.fields(verb)}


def _start(hint: Any) -> Any:
    """Switches are off, so that no value is completed after them; other flags start from nothing."""
    kind = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return dataclasses.field(default=False) if kind is bool else dataclasses.field()


def _with_names(hint: Any) -> Any:
    """The type of a flag as the script needs it: never None, and with the names it takes as its choices."""
    kind, *marks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if get_origin(kind) in (Union, UnionType):
        kind = Union[tuple(part for part in get_args(kind) if part is not type(None))]  # noqa: UP007
    for mark in marks:
        if isinstance(known := getattr(mark, "help_behavior_hint", None), Names):
            kind = Literal[tuple(known.names())]
    return Annotated[kind, *marks] if marks else kind

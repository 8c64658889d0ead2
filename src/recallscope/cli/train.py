"""`recallscope train`: one run, with a progress bar, kept on disk, resumed if it was cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recallscope.cli.flags import OptionalPath, Quiet, RunFlags, with_run_flags
from recallscope.cli.output import print_json, show

if TYPE_CHECKING:
    from recallscope.records import RunRecord
    from recallscope.specs import RunSpec


@dataclass(kw_only=True)
class Train(RunFlags):
    """Train one model on a recall task.

    recallscope train --vocab-size 128 --num-facts 8 --embed-dim 32 --state-dim 16 --flat-steps 100 --decay-steps 100

    Start from a published experiment with --preset and change any field:

    recallscope train --preset dn-linear --batch-size 32 --flat-steps 20 --decay-steps 30 --eval-size 200

    Name your own torch.nn.Module to train it; its constructor receives vocab_size and --model-args:

    recallscope train --model examples/gru.py:Model --vocab-size 64 --num-facts 4 --flat-steps 50 --decay-steps 50

    A TOML file can hold the run, with tables task, model and train as in a grid; flags override it:

    recallscope train --config examples/run.toml --embed-dim 24

    With --out the run is checkpointed: interrupt it any time, and rerun the same command to resume. A finished run is
    answered from its record; a folder that holds another run is refused. The exit code is 1 if the run diverged, 130 if
    it was interrupted. A warning goes to stderr if accuracy stayed at chance or was still improving.
    """

    device: str = "auto"
    """auto, cpu, cuda, cuda:1 ..."""
    threads: int = 1
    """CPU threads: one is fastest for small models, and the only setting with bit-equal results."""
    out: OptionalPath = None
    """Folder for record.json, weights.safetensors and the checkpoint."""
    overwrite: bool = False
    """Replace the finished run or the other checkpoint that --out holds."""
    quiet: Quiet = False
    """Show no progress."""
    json: bool = False
    """Print one JSON object at the end."""

    def run(self) -> int:
        """Build the spec, train unless it is done, keep, report."""
        run = self.run_spec()
        from recallscope.cli.run_folder import finished_run, warn_of

        done = finished_run(self.out, run, overwrite=self.overwrite) if self.out else None
        record = done or self._train(run)
        explanation = warn_of(record)
        if self.json:
            shown = {"run", "spec", "test_accuracy", "val_accuracy", "top_k", "steps", "seconds"}
            facts = record.model_dump(mode="json", include=shown)
            print_json(facts | {"warning": record.flag, "explanation": explanation, "already_done": done is not None})
        else:
            self._print(record, "already done: --overwrite trains it again" if done else "")
        return 1 if record.flag == "diverged" else 0

    def _train(self, run: RunSpec) -> RunRecord:
        from recallscope.cli.run_folder import checkpoint_in, keep
        from recallscope.cli.training import keep_freed_memory, pick_device, train_resumable, use_threads

        use_threads(self.threads)
        keep_freed_memory()
        device = pick_device(self.device)
        checkpoint = checkpoint_in(self.out) if self.out else None
        trained = train_resumable(run, device=device, checkpoint=checkpoint, overwrite=self.overwrite, quiet=self.quiet)
        if self.out:
            keep(trained, self.out)
        return trained.record

    def _print(self, record: RunRecord, note: str) -> None:
        from recallscope.predictions import run_predictions

        effort = f"{record.test_queries:,} queries, {record.steps} steps, {record.seconds:.1f} s"
        lines = [f"test accuracy {record.test_accuracy:.4f}  ({effort})"]
        among = ", ".join(f"top-{k} {share:.4f}" for k, share in (record.top_k or {}).items())
        lines += [f"among the best {among}"] if among else []
        lines += [f"predicted     {p:.4f}  by {law}" for law, p in run_predictions(record.spec)]
        lines += [f"kept in {self.out}" + (f", {note}" if note else "")] if self.out else []
        show(lines, bold=1)


def command_for(arguments: Sequence[str]) -> type:
    """The command with flags for the task and the model that are asked for."""
    return with_run_flags(Train, arguments)

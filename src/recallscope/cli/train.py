"""`recallscope train`: one run, with a progress bar, kept on disk, resumed if it was cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from recallscope.cli.flags import OptionalFloat, OptionalInt, OptionalPath, OptionalText, Unset, print_json
from recallscope.specs import Filler, HeadPattern, RunSpec, TaskKind

TASK_FIELDS = ("vocab_size", "num_facts", "length", "power_a", "filler", "key_repeats")
MODEL_FIELDS = (
    "embed_dim",
    "state_dim",
    "expand",
    "conv_width",
    "num_layers",
    "residual",
    "num_heads",
    "head_pattern",
    "norm",
    "gate",
    "activation",
    "transition",
    "delta_rank",
    "skip",
    "conv_bias",
)
TRAIN_FIELDS = (
    "batch_size",
    "accumulate",
    "learning_rate",
    "warmup_steps",
    "flat_steps",
    "decay_steps",
    "weight_decay",
    "label_smoothing",
    "clip_norm",
    "stop_accuracy",
    "eval_every",
    "eval_size",
    "embedding_std",
)


@dataclass(kw_only=True)
class Train:
    """recallscope train --vocab-size 128 --num-facts 8 --embed-dim 32 --state-dim 16 --flat-steps 100 --decay-steps 100

    Train one model on a recall task. Start from a published experiment with --preset and change what you like:

    recallscope train --preset dn-linear --batch-size 32 --flat-steps 20 --decay-steps 30 --eval-size 200

    With --out the run is checkpointed, can be killed at any time, and goes on where it was when started again.
    """

    preset: OptionalText = None
    """dn-linear, dn-full, layers, layers-ar, heads, large-vocab, repeated-keys, mechanism, minimality, minimality-a
    .. minimality-e."""
    model: Annotated[Literal["linear", "multihead", "full", "full2"] | None, Unset] = None
    """linear: simplified Mamba; multihead: simplified Mamba-2; full: Mamba; full2: Mamba-2."""
    task: Annotated[TaskKind | None, Unset] = None
    """ar, mqar or repeated."""
    seed: int = 0
    """Owner of every random stream of the run."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1 ..."""
    threads: int = 1
    """Threads on a CPU: one is fastest for small models, and the only number with bit-equal results."""
    out: OptionalPath = None
    """Folder for record.json, weights.safetensors and the checkpoint."""
    vocab_size: OptionalInt = None
    """V."""
    num_facts: OptionalInt = None
    """N_f."""
    length: OptionalInt = None
    """L."""
    power_a: OptionalFloat = None
    """Query slot g is drawn with weight (g+1)^(power_a-1)."""
    filler: Annotated[Filler | None, Unset] = None
    """random, zero or values."""
    key_repeats: OptionalInt = None
    """N_k."""
    embed_dim: OptionalInt = None
    """D."""
    state_dim: OptionalInt = None
    """N."""
    expand: OptionalInt = None
    """D_in / D."""
    conv_width: OptionalInt = None
    """D_conv."""
    num_layers: OptionalInt = None
    """Lambda."""
    residual: Annotated[Literal["yes", "no"] | None, Unset] = None
    """Add each layer's input to its output."""
    num_heads: OptionalInt = None
    """M (multihead, full2)."""
    head_pattern: Annotated[HeadPattern | None, Unset] = None
    """MHA, MQA, MKA or MVA (multihead, full2)."""
    norm: Annotated[Literal["rms", "none"] | None, Unset] = None
    """(full)"""
    gate: Annotated[Literal["yes", "no"] | None, Unset] = None
    """(full)"""
    activation: Annotated[Literal["silu", "none"] | None, Unset] = None
    """(full)"""
    transition: Annotated[Literal["selective", "identity"] | None, Unset] = None
    """(full)"""
    delta_rank: Annotated[Literal["low", "full"] | None, Unset] = None
    """(full)"""
    skip: Annotated[Literal["yes", "no"] | None, Unset] = None
    """(full)"""
    conv_bias: Annotated[Literal["yes", "no"] | None, Unset] = None
    """(full)"""
    batch_size: OptionalInt = None
    """Sequences in one forward pass."""
    accumulate: OptionalInt = None
    """Forward passes per optimiser step."""
    learning_rate: OptionalFloat = None
    """Of the flat part."""
    warmup_steps: OptionalInt = None
    """Linear from 0."""
    flat_steps: OptionalInt = None
    """At the learning rate."""
    decay_steps: OptionalInt = None
    """Cosine to 0."""
    weight_decay: OptionalFloat = None
    """AdamW."""
    label_smoothing: OptionalFloat = None
    """Of the cross-entropy."""
    clip_norm: OptionalFloat = None
    """Largest gradient norm."""
    stop_accuracy: OptionalFloat = None
    """Stop when the validation accuracy reaches this."""
    eval_every: OptionalInt = None
    """Steps between evaluations."""
    eval_size: OptionalInt = None
    """Sequences in the validation set, and in the test set."""
    embedding_std: OptionalFloat = None
    """Of the embedding at the start."""
    json: bool = False
    """Print one JSON object at the end."""

    def run(self) -> int:
        """Build the spec, train, keep, report."""
        run = self.spec()
        from recallscope.cli.training import keep, keep_freed_memory, pick_device, train_with_bar, use_threads

        use_threads(self.threads)
        keep_freed_memory()
        device = pick_device(self.device)
        checkpoint = self.out / "checkpoint.safetensors" if self.out else None
        trained = train_with_bar(run, device=device, checkpoint=checkpoint)
        if self.out:
            keep(trained, self.out)
        record = trained.record
        if self.json:
            print_json(
                {
                    "run": record.run,
                    "spec": record.spec.model_dump(mode="json"),
                    "test_accuracy": record.test_accuracy,
                    "val_accuracy": record.val_accuracy,
                    "steps": record.steps,
                    "seconds": record.seconds,
                }
            )
            return 0
        self._report(run, record.test_accuracy, record.test_queries, record.steps, record.seconds)
        return 0

    def spec(self) -> RunSpec:
        """Preset, then flags on top."""
        from recallscope.presets import PRESETS, preset_run

        def given(names: tuple[str, ...]) -> dict[str, Any]:
            values = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
            return {
                name: {"yes": True, "no": False}.get(value, value) if isinstance(value, str) else value
                for name, value in values.items()
            }

        task, model, train = given(TASK_FIELDS), given(MODEL_FIELDS), given(TRAIN_FIELDS)
        if self.task:
            task["kind"] = self.task
        if self.model:
            model["kind"] = self.model
        if self.preset is not None:
            if self.preset not in PRESETS:
                import difflib

                near = difflib.get_close_matches(self.preset, PRESETS, n=2, cutoff=0.4)
                hint = f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(PRESETS)}."
                raise ValueError(f"preset={self.preset!r} is not one of the published experiments. {hint}")
            return preset_run(self.preset, task=task, model=model, train=train, seed=self.seed)
        missing = [
            name for name in ("vocab_size", "num_facts", "embed_dim", "state_dim") if getattr(self, name) is None
        ]
        if missing:
            flags = ", ".join("--" + name.replace("_", "-") for name in missing)
            raise ValueError(f"without --preset a run needs {flags} as well. Try --preset dn-linear.")
        model.setdefault("kind", "linear")
        return RunSpec.model_validate({"task": task, "model": model, "train": train, "seed": self.seed})

    def _report(self, run: RunSpec, accuracy: float, queries: int, steps: int, seconds: float) -> None:
        from rich.console import Console

        from recallscope.cli.predict import law_or_nan
        from recallscope.theory.catalogue import RECOMMENDED, find_law

        console = Console()
        console.print(
            f"[bold]test accuracy {accuracy:.4f}[/bold]  ({queries:,} queries, {steps} steps, {seconds:.1f} s)",
            highlight=False,
        )
        if run.task.kind == "repeated" or run.model.kind == "multihead" or run.model.kind == "full2":
            return
        name, _ = RECOMMENDED["full" if run.model.kind == "full" else "trained"]
        for law in (find_law(name), find_law("unified")):
            p = law_or_nan(
                law,
                vocab_size=run.task.vocab_size,
                num_facts=run.task.num_facts,
                embed_dim=run.model.embed_dim,
                state_dim=run.model.state_dim,
                task=run.task.kind,
                length=run.task.length if run.task.kind == "mqar" else None,
                num_layers=run.model.num_layers,
            )
            if p[0] == p[0]:
                console.print(f"predicted     {p[0]:.4f}  by {law.name}", highlight=False)
        if self.out:
            console.print(f"kept in {self.out}", highlight=False)

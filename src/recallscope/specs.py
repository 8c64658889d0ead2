"""Specs: what a task, a model and a run are. Plain facts, no torch, no side effects.

Every spec is frozen and strict. Derived numbers are properties, never fields. A run is named by its identity: the kinds
of its parts and the fields that differ from their defaults. Adding a field whose default is the old behaviour therefore
changes no name, and every stored run keeps its own. Tasks and architectures are open sets: each is a spec class
registered under a name (`@task("mqar")`, `@architecture("linear_mamba")`), in this package or in anybody else's. This
package's own are also listed in `TASKS` and `ARCHITECTURES`.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    SerializeAsAny,
    ValidationError,
    WrapValidator,
    field_validator,
    model_validator,
)

from recallscope.registry import Registry, UnknownNameError, suggestion

if TYPE_CHECKING:
    import torch

    from recallscope.architectures.model import RecallModel
    from recallscope.tasks.batch import Batch

TRIALS_FROM = 2**30  # seeds from here on are those of learning-rate trials
LARGEST = 10**9  # no dimension of a spec may exceed this: larger numbers are typing slips, not models
IDENTITY = 2  # version of the rule that names runs; 1 hashed the defaults, too

Size = Annotated[int, Field(gt=0, le=LARGEST)]
Steps = Annotated[int, Field(ge=0, le=LARGEST)]
Positive = Annotated[float, Field(gt=0, le=1e9)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Value = int | float | str | bool | None
HeadPattern = Literal["MHA", "MQA", "MKA", "MVA"]
_PLAIN = frozenset((int, float, str, bool, type(None), dict))


def canonical_json(value: Any) -> str:
    """One text per meaning: sorted keys, no white space, shortest exact floats."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def identity_hash(kind: str, identity: Mapping[str, Any]) -> str:
    """The name of a spec with this identity: 24 hex digits of SHA-256."""
    text = f"recallscope/{IDENTITY}/{kind}/{canonical_json(identity)}"
    return hashlib.sha256(text.encode()).hexdigest()[:24]


class Frozen(BaseModel):
    """Plain data: frozen and strict; an unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Spec(Frozen):
    """Base of all specs: data with a name that follows from its content."""

    schema_number: ClassVar[int] = 1  # raised when a field changes its meaning, so that old and new runs differ

    @model_validator(mode="wrap")
    @classmethod
    def _plain_numbers_and_known_names(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Make plain numbers of numpy's, before any other validator; of an unknown field, say which is meant."""
        if isinstance(data, dict) and not _PLAIN.issuperset(map(type, data.values())):
            data = {name: _plain_number(value) for name, value in data.items()}
        try:
            return handler(data)
        except ValidationError as error:
            unknown = [fault["loc"] for fault in error.errors() if fault["type"] == "extra_forbidden"]
            if unknown and len(unknown[0]) == 1:
                raise ValueError(unknown_field(str(unknown[0][0]), cls)) from error
            raise

    def canonical_json(self) -> str:
        """All fields as one text."""
        return canonical_json(self.model_dump(mode="json"))

    def identity(self) -> dict[str, Any]:
        """The kind, and the fields that differ from their defaults, parts likewise."""
        infos = type(self).model_fields
        kept: dict[str, Any] = {} if self.schema_number == 1 else {"schema": self.schema_number}
        for name, value in self.model_dump(mode="json").items():
            mine, info = getattr(self, name), infos.get(name)
            if isinstance(mine, Spec):
                kept[name] = mine.identity()
            elif name == "kind" or info is None or mine != info.get_default(call_default_factory=True):
                kept[name] = value
        return kept

    def content_hash(self) -> str:
        """The spec's name: a hash of its identity, the same in every process and on every machine."""
        return identity_hash(type(self).__name__, self.identity())


def _plain_number(value: Any) -> Any:
    """Whole numbers and reals of other libraries as Python's own; all else as it is."""
    if type(value) in _PLAIN or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


class _Kind(Spec):
    """A spec that is one of several kinds; `kind` is the name it is registered under, written by the decorator."""

    FOLLOWING: ClassVar[tuple[str, ...]] = ()  # required fields that follow from others if they are left out
    kind: str = Field("", description="")

    @field_validator("kind")
    @classmethod
    def _kind_is_the_registered_one(cls, kind: str) -> str:
        wanted = cls.model_fields["kind"].default
        if kind != wanted:
            raise ValueError(f"kind={kind!r} is not a {cls.__name__}, whose kind is {wanted!r}.")
        return kind

    def leaving_out(self) -> dict[str, Any]:
        """The fields, without those that follow from the others anyway: what a variant of this spec starts from."""
        fields = self.model_dump(mode="json")
        for name in self.FOLLOWING:
            without = {key: value for key, value in fields.items() if key != name}
            if name != "kind" and type(self).model_validate(without) == self:
                fields = without
        return fields


class TaskSpec(_Kind):
    """Base of all tasks: sequences of tokens with questions at some positions.

    A task is a subclass that adds its fields and draws batches, such as `MQARSpec(vocab_size=64, num_facts=4)`.
    `parse_task` makes one from a mapping with its `kind`.
    """

    vocab_size: Size = Field(description="V, number of tokens")

    @property
    @abstractmethod
    def sequence_length(self) -> int:
        """L, tokens in one sequence."""

    @property
    @abstractmethod
    def num_queries(self) -> int:
        """Questions asked in one sequence."""

    @abstractmethod
    def draw(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Independent sequences on the generator's device; nothing else is random."""

    def levels(self) -> tuple[TaskSpec, ...]:
        """The levels of a curriculum, easiest first; the last one is the task itself."""
        return (self,)

    def zoology_levels(self) -> tuple[TaskSpec, ...]:
        """The tasks of zoology's training mixture whose largest is this one, easiest first."""
        return (self,)

    def zoology_tests(self) -> tuple[TaskSpec, ...]:
        """The tasks that zoology would test a model on which was trained on that mixture."""
        return (self,)


class ModelSpec(_Kind):
    """Base of all architectures: fields are the model's sizes and switches; `model` names its class.

    `model` is "package.module:Class", or just "Class" if it is in the spec's own module. The class is called with the
    spec and the number of tokens, and is a `RecallModel`. A spec in a file without torch can be read without torch.
    """

    model: ClassVar[str] = ""
    law: ClassVar[str | None] = None  # the law of the catalogue that predicts its recall, if one does

    def identity(self) -> dict[str, Any]:
        """As of any spec; a kind that was renamed is hashed as before, so that its runs keep their names."""
        return super().identity() | {"kind": _HASHED_AS.get(self.kind, self.kind)}

    @property
    def own_law(self) -> str | None:
        """The law that speaks about this very form of the architecture, if one does."""
        return self.law

    @property
    def changed(self) -> frozenset[str]:
        """Fields that have a default, and differ from it."""
        known = {name: field for name, field in type(self).model_fields.items() if not field.is_required()}
        return frozenset(name for name, field in known.items() if getattr(self, name) != field.get_default())

    def blank_model(self, vocab_size: int) -> RecallModel:
        """The model with its weights not yet drawn."""
        module, _, name = self.model.rpartition(":")
        made: RecallModel = getattr(importlib.import_module(module or type(self).__module__), name)(self, vocab_size)
        return made

    @property
    def state_entries(self) -> int | None:
        """S of Lem 4.5, the entries that carry the context past a token; None if it is not declared."""
        return None

    @property
    def effective_entries(self) -> int | None:
        """Of those, the numbers that any later output depends on: the effective state size (`measuring.state`).

        A test measures it for every architecture.
        """
        return self.state_entries

    def state_entries_after(self, tokens: int) -> int | None:
        """The same after so many tokens, for models whose memory grows."""
        return self.state_entries

    def parameter_count(self, vocab_size: int) -> int | None:
        """Numbers that training sets, where they are known without the model."""
        return None

    def work_per_token(self) -> float:
        """Multiplications of the mixer per token, roughly: to start long runs first and to guess the time left."""
        return float(math.prod(map(self.size_of, ("embed_dim", "state_dim", "num_layers"))) * self.size_of("embed_dim"))

    def size_of(self, name: str) -> int:
        """A field that is a whole number; 1 for one that is not, or not there, as an outsider's arguments may be."""
        value = getattr(self, name, 1)
        return value if isinstance(value, int) else 1


TASKS: Registry[type[TaskSpec]] = Registry(
    "task",
    {
        "ar": "recallscope.tasks.associative_recall:ARSpec",
        "compositional_mqar": "recallscope.tasks.zoology_tasks:CompositionalMQAR",
        "forgetting_mqar": "recallscope.tasks.zoology_tasks:ForgettingMQAR",
        "mqar": "recallscope.tasks.associative_recall:MQARSpec",
        "repeated": "recallscope.tasks.associative_recall:RepeatedSpec",
        "template_ar": "recallscope.tasks.correlated_keys:TemplateAR",
        "template_mqar": "recallscope.tasks.correlated_keys:TemplateMQAR",
    },
)
ARCHITECTURES: Registry[type[ModelSpec]] = Registry(
    "architecture",
    {
        "attention": "recallscope.architectures.matrix_memory:AttentionSpec",
        "comba": "recallscope.architectures.matrix_memory:CombaSpec",
        "delta_net": "recallscope.architectures.matrix_memory:DeltaNetSpec",
        "delta_product": "recallscope.architectures.matrix_memory:DeltaProductSpec",
        "gated_delta_net": "recallscope.architectures.matrix_memory:GatedDeltaNetSpec",
        "gated_delta_net2": "recallscope.architectures.matrix_memory:GatedDeltaNet2Spec",
        "gla": "recallscope.architectures.matrix_memory:GLASpec",
        "hybrid": "recallscope.architectures.matrix_memory:HybridSpec",
        "kda": "recallscope.architectures.matrix_memory:KDASpec",
        "linear_mamba": "recallscope.architectures.mamba:LinearMambaSpec",
        "linear_attention": "recallscope.architectures.matrix_memory:LinearAttentionSpec",
        "mamba": "recallscope.architectures.mamba:MambaSpec",
        "mamba2": "recallscope.architectures.mamba:Mamba2Spec",
        "mamba3": "recallscope.architectures.matrix_memory:Mamba3Spec",
        "mesa_net": "recallscope.architectures.matrix_memory:MesaNetSpec",
        "mlstm": "recallscope.architectures.matrix_memory:MLSTMSpec",
        "multihead": "recallscope.architectures.mamba:MultiHeadSpec",
        "preconditioned_delta_net": "recallscope.architectures.matrix_memory:PreconditionedDeltaNetSpec",
        "retnet": "recallscope.architectures.matrix_memory:RetNetSpec",
        "routed_memory": "recallscope.architectures.matrix_memory:RoutedMemorySpec",
        "rwkv7": "recallscope.architectures.matrix_memory:RWKV7Spec",
        "window_attention": "recallscope.architectures.matrix_memory:WindowAttentionSpec",
    },
)
STORED_KINDS = {"linear": "linear_mamba", "full": "mamba", "full2": "mamba2"}  # as runs are stored and hashed: kind
_HASHED_AS = {kind: stored for stored, kind in STORED_KINDS.items()}
K = TypeVar("K", bound=_Kind)


def task(name: str) -> Callable[[type[TaskSpec]], type[TaskSpec]]:
    """Decorator: register a task under this name, which becomes its `kind`."""
    return _registered(TASKS, name)


def architecture(name: str) -> Callable[[type[ModelSpec]], type[ModelSpec]]:
    """Decorator: register an architecture under this name, which becomes its `kind`."""
    return _registered(ARCHITECTURES, name)


def current_kind(kind: Any) -> Any:
    """A kind as a stored run has it, by its name of today."""
    return STORED_KINDS.get(kind, kind) if isinstance(kind, str) else kind


def refuse_stored_kind(name: str, flag: str = "model") -> None:
    """ValueError about a name that only stored runs have; it says what the architecture is called."""
    if name in STORED_KINDS:
        raise UnknownNameError(
            f"{flag}={name!r} is called {STORED_KINDS[name]} now. Write {flag}={STORED_KINDS[name]}."
        )


def _registered(registry: Registry[Any], name: str) -> Callable[[type[K]], type[K]]:
    def register(cls: type[K]) -> type[K]:
        if registry is ARCHITECTURES and name in STORED_KINDS:
            raise ValueError(
                f"architecture {name!r}: stored runs have {STORED_KINDS[name]} under this name. Rename it."
            )
        cls.model_fields["kind"].default = name
        cls.model_rebuild(force=True)
        registry.add(name, cls, module=cls.__module__)
        return cls

    return register


def find_architecture(kind: str) -> type[ModelSpec]:
    """The spec class of an architecture: a registered name, or `my_nets:MyModel` for a module of the user's own."""
    if names_code(kind):
        module = importlib.import_module("recallscope.architectures.user_module")
        found: type[ModelSpec] = module.MixerSpec if kind.startswith("mixer:") else module.ModuleSpec
        return found
    if kind.endswith(".py"):
        raise UnknownNameError(f"model={kind!r} is a file and names no class in it. Write {kind}:MyModel.")
    refuse_stored_kind(kind)
    return ARCHITECTURES.find(kind)


def names_code(kind: object) -> bool:
    """Whether a model's kind is code of the user's own, `my_nets:MyModel`: to build such a model runs it."""
    return isinstance(kind, str) and ":" in kind


def check_saved_model(fields: object) -> None:
    """Refuse the fields of a model, read from a file, that name code and no digest of its source.

    Of what a user types the digest is taken from the source; a file is not to make us look for, or read, any code.
    """
    if isinstance(fields, Mapping) and names_code(fields.get("kind")) and not isinstance(fields.get("digest"), str):
        raise ValueError(f"it names the code {fields['kind']!r} without the digest of its source")


def _kind_of(fields: Mapping[str, Any], default: str) -> str:
    """The kind that some fields name; a file may hold anything in their place."""
    kind = (fields.get("kind") or default) if isinstance(fields, Mapping) else None
    if not isinstance(kind, str):
        raise ValueError(f"{str(fields)[:60]} is not a table with a kind, which is a name such as {default!r}.")
    return kind


def parse_task(fields: Mapping[str, Any]) -> TaskSpec:
    """The task that these fields describe; "mqar" unless they say otherwise."""
    return TASKS.find(_kind_of(fields, "mqar")).model_validate(dict(fields))


def parse_model(fields: Mapping[str, Any]) -> ModelSpec:
    """The model spec that these fields describe, stored ones included; "linear_mamba" unless they say otherwise."""
    kind = current_kind(_kind_of(fields, "linear_mamba"))
    return find_architecture(kind).model_validate(dict(fields, kind=kind))


def _open(base: type[_Kind], parse: Callable[[Mapping[str, Any]], _Kind]) -> WrapValidator:
    """Validate a part of a run as the registered class of its kind."""

    def validate(value: Any, handler: Any) -> Any:
        if isinstance(value, base):
            return value
        return parse(value) if isinstance(value, Mapping) else handler(value)

    return WrapValidator(validate)


AnyTask = Annotated[SerializeAsAny[TaskSpec], _open(TaskSpec, parse_task)]
AnyModel = Annotated[SerializeAsAny[ModelSpec], _open(ModelSpec, parse_model)]


class TrainSpec(Spec):
    """How a model learns (Tab. 9, `tab:hyperparams`); the defaults are the linear D-N grids'."""

    kind: Literal["train"] = "train"
    batch_size: Size = Field(128, description="sequences in one forward pass")
    accumulate: Size = Field(1, description="forward passes per optimiser step")
    learning_rate: Positive = Field(0.01, description="of the flat part of the schedule")
    warmup_steps: Steps = Field(100, description="linear, from 0")
    flat_steps: Steps = Field(400, description="at the learning rate")
    decay_steps: Steps = Field(1500, description="cosine, to 0")
    beta_1: Fraction = Field(0.9, description="AdamW, decay of the first moment")
    beta_2: Fraction = Field(0.95, description="AdamW, decay of the second moment")
    weight_decay: Annotated[float, Field(ge=0, le=1e3)] = Field(0.0, description="AdamW")
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(0.1, description="of the cross-entropy")
    clip_norm: Positive = Field(1.5, description="largest global gradient norm")
    stop_accuracy: Fraction = Field(1.0, description="stop when the validation accuracy reaches this")
    eval_every: Size = Field(250, description="steps between evaluations")
    eval_size: Size = Field(10_000, description="sequences in the validation set, and in the test set")
    embedding_std: Positive = Field(1.0, description="of the embedding at the start")
    training_facts: Literal["target", "curriculum", "mixture", "zoology"] = Field(
        "target",
        description="facts per training sequence: the task's; first 1, 2, 4, ...; one of these each step; or one of "
        "N_f/16 to N_f each step, N_f/16 as often as not, as in zoology",
    )
    curriculum_accuracy: Fraction = Field(0.9, description="running training accuracy that ends a curriculum level")
    curriculum_share: Fraction = Field(0.5, description="largest fraction of the steps before the curriculum's target")

    @property
    def total_steps(self) -> int:
        """Warm-up, flat and decay together."""
        return self.warmup_steps + self.flat_steps + self.decay_steps


def field_owners(name: str) -> dict[str, list[str]]:
    """Who has a field of this name: kinds of tasks and models, and training, by part of a run."""
    found = {
        part: [kind for kind in registry.names() if name in registry.find(kind).model_fields]
        for part, registry in (("task", TASKS), ("model", ARCHITECTURES))
    }
    found["train"] = ["training"] if name in TrainSpec.model_fields else []
    return {part: kinds for part, kinds in found.items() if kinds and name != "kind"}


def unknown_field(name: str, owner: type[Spec]) -> str:
    """Two sentences about a field that a spec does not have: who has it, or which names are near."""
    mine = owner.model_fields
    title = (mine["kind"].default if "kind" in mine else "") or owner.__name__
    elsewhere = [kind for kinds in field_owners(name).values() for kind in kinds]
    if elsewhere:
        return f"{title} has no field {name!r}; {', '.join(elsewhere)} {'have' if len(elsewhere) > 1 else 'has'} it."
    return f"{title} has no field {name!r}. {suggestion(name, [field for field in mine if field != 'kind'])}"


class RunSpec(Spec):
    """One training: everything its result depends on. Equal spec, equal result, bit for bit on one thread."""

    task: AnyTask
    model: AnyModel
    train: TrainSpec = Field(default_factory=TrainSpec)
    seed: Annotated[int, Field(ge=0, lt=2**31)] = Field(
        0, description="random seed of the run; seeds from 2^30 on mark learning-rate trials"
    )


PARTS = ("task", "model", "train")


def run_name(parts: Mapping[str, str], seed: int) -> str:
    """The name of a run by its parts' identities, as canonical JSON, and its seed: `content_hash` for many runs."""
    fields = {**parts} if seed == RunSpec.model_fields["seed"].default else {**parts, "seed": str(seed)}
    text = ",".join(f'"{name}":{fields[name]}' for name in sorted(fields))
    return hashlib.sha256(f"recallscope/{IDENTITY}/RunSpec/{{{text}}}".encode()).hexdigest()[:24]


RESULTS = (
    "test_accuracy",
    "val_accuracy",
    "test_queries",
    "best_step",
    "steps",
    "seconds",
    "parameters",
    "state_entries",
    "effective_entries",
    "warning",
)
COLUMNS = frozenset(("run", "status", "schema_version", "needs", "task", "model", "seed", *RESULTS))  # no field's name
_TRAIN_FIELDS = frozenset(TrainSpec.model_fields)


def flat_fields(fields: Mapping[str, Any] | RunSpec) -> dict[str, Value]:
    """The fields of a run as one flat table: the form in which runs are listed, filtered, fitted and plotted.

    `fields` is a RunSpec, or its plain data, whoever wrote it: no class is needed to read that. A field's column is its
    name, and the kinds are `task` and `model`. A name that a column, the training or an earlier part has already is
    prefixed with its own part.
    """
    fields = fields.model_dump(mode="json") if isinstance(fields, RunSpec) else fields
    flat: dict[str, Value] = {}
    for part in PARTS:
        table, taken = fields.get(part), COLUMNS if part == "train" else COLUMNS | _TRAIN_FIELDS
        for name, value in table.items() if isinstance(table, dict) else ():
            if name != "kind":
                column = f"{part}.{name}" if name in taken or name in flat else name
                flat[column] = value if type(value) in (int, bool) else _plain(value)
            elif part != "train":
                flat[part] = current_kind(_plain(value)) if part == "model" else _plain(value)
    flat["seed"] = _plain(fields.get("seed", 0))
    return flat


def _plain(value: Any) -> Value:
    """A plain value as it is; lists and tables among an outsider's arguments as JSON, and infinity as None."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    return value if isinstance(value, int | str | None) else json.dumps(value, sort_keys=True, separators=(",", ":"))


def path_of(column: str, task: type[TaskSpec], model: type[ModelSpec]) -> tuple[str, str] | None:
    """Where a column belongs in a run of this task and this model: (part, field); None if nowhere.

    A model that takes any field, as an outsider's module does, gets the fields that nobody else knows.
    """
    if column in ("task", "model"):
        return column, "kind"
    if column == "seed":
        return "", "seed"
    prefix, _, name = column.rpartition(".")
    if name == "kind" or (not prefix and name in COLUMNS):
        return None
    owners: dict[str, type[Spec]] = {"train": TrainSpec, "task": task, "model": model}
    for part, owner in owners.items():
        if prefix in ("", part) and name in owner.model_fields:
            return part, name
    return ("model", name) if has_field(model, name) and prefix in ("", "model") else None


def has_field(owner: type[Spec], name: str) -> bool:
    """Whether a spec has a field of this name, or takes any."""
    return name in owner.model_fields or owner.model_config.get("extra") == "allow"

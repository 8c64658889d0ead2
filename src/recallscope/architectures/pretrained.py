"""Mamba language models from elsewhere, as our models: traces, implicit attention and state probes then work on them.

Reads a local Hugging Face checkpoint folder: config.json of a Mamba or Mamba-2, and safetensors in one file or
several. Never pickle: unpickling runs whatever the file says. Everything is computed in one precision, float32 unless
asked otherwise, so `residual_in_fp32`, which spares residuals from bfloat16, makes no difference here.
"""

import json
import logging
import math
from abc import abstractmethod
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from torch import Tensor

from recallscope.architectures.blocks import BlockModel
from recallscope.architectures.layered import Details
from recallscope.architectures.mamba import Mamba2Spec, MambaSpec
from recallscope.architectures.mamba2_model import Mamba2
from recallscope.architectures.mamba_model import Mamba
from recallscope.architectures.model import check_shapes, check_weights, load_weights, read_tensors
from recallscope.architectures.ram import require_memory
from recallscope.specs import Positive, Size

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
_WEIGHT_MAP: TypeAdapter[dict[str, str]] = TypeAdapter(dict[str, str])
logger = logging.getLogger(__name__)


def _plain_float(value: Any) -> Any:
    """transformers writes infinity as {"__float__": "Infinity"}."""
    return float(value["__float__"]) if isinstance(value, dict) and set(value) == {"__float__"} else value


class _Config(BaseModel):
    """The fields that change what is computed; the rest (caches, initial weights, token ids) is not read."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    vocab_size: Size
    hidden_size: Size
    state_size: Size
    num_hidden_layers: Size
    expand: Size = 2
    conv_kernel: Size = 4
    use_bias: bool = False
    use_conv_bias: bool = True
    hidden_act: Literal["silu", "swish"] = "silu"
    layer_norm_epsilon: Positive = 1e-5
    tie_word_embeddings: bool

    def details(self) -> Details:
        """What the spec does not say."""
        return Details(self.layer_norm_epsilon, self.use_bias, self.tie_word_embeddings)

    @abstractmethod
    def blank_model(self) -> BlockModel:
        """The model, to be filled with the checkpoint's weights."""

    def adapted(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The checkpoint's tensors in our shapes."""
        return tensors

    def _shared(self) -> dict[str, Any]:
        return {
            "embed_dim": self.hidden_size,
            "state_dim": self.state_size,
            "expand": self.expand,
            "conv_width": self.conv_kernel,
            "num_layers": self.num_hidden_layers,
            "conv_bias": self.use_conv_bias,
        }


class MambaConfig(_Config):
    """Of `MambaForCausalLM`."""

    model_type: Literal["mamba"]
    state_size: Size = 16
    time_step_rank: Size | Literal["auto"] = "auto"
    tie_word_embeddings: bool = True

    def blank_model(self) -> Mamba:
        """Eq. 1-3, every part switched on."""
        return Mamba(MambaSpec(**self._shared()), self.vocab_size, self.details())

    def details(self) -> Details:
        """The rank of Δ besides."""
        return replace(super().details(), delta_rank=None if self.time_step_rank == "auto" else self.time_step_rank)


class Mamba2Config(_Config):
    """Of `Mamba2ForCausalLM`."""

    model_type: Literal["mamba2"]
    state_size: Size = 128
    num_heads: Size
    head_dim: Size
    n_groups: Size = 8
    time_step_limit: tuple[Annotated[float, BeforeValidator(_plain_float)], ...] = (0.0, math.inf)
    tie_word_embeddings: bool = False

    def blank_model(self) -> Mamba2:
        """One group of keys and queries is MVA; more are MHA, shared ones repeated."""
        E = self.expand * self.hidden_size
        if self.num_heads * self.head_dim != E or self.num_heads % self.n_groups:
            raise ValueError(
                f"num_heads={self.num_heads} x head_dim={self.head_dim} with n_groups={self.n_groups} does not fit "
                f"expand x hidden_size = {E}: heads share out the channels, and groups the heads, evenly."
            )
        pattern: Literal["MVA", "MHA"] = "MVA" if self.n_groups == 1 else "MHA"
        spec = Mamba2Spec(**self._shared(), num_heads=self.num_heads, head_pattern=pattern)
        return Mamba2(spec, self.vocab_size, self.details())

    def adapted(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Heads that share keys and queries in groups get a copy each: the same function, as MHA."""
        G, M, N, E = self.n_groups, self.num_heads, self.state_size, self.expand * self.hidden_size
        if G in (1, M):
            return tensors
        logger.info("n_groups=%d of %d heads: keys and queries are repeated for every head", G, M)

        def repeated(weight: Tensor, before: int) -> Tensor:
            first, B, C, last = weight.split([before, G * N, G * N, weight.shape[0] - before - 2 * G * N])
            B, C = (v.unflatten(0, (G, N)).repeat_interleave(M // G, dim=0).flatten(0, 1) for v in (B, C))
            return torch.cat((first, B, C, last))

        before_B = {"mixer.in_proj.": 2 * E, "mixer.conv1d.": E}  # rows ahead of B: ẑ and x̂, or x̂ alone
        return tensors | {
            name: repeated(tensor, rows)
            for name, tensor in tensors.items()
            for part, rows in before_B.items()
            if part in name
        }

    def details(self) -> Details:
        """The limits of Δ besides."""
        lowest, highest = self.time_step_limit
        return replace(super().details(), delta_limits=(lowest, highest))


_CONFIG: TypeAdapter[MambaConfig | Mamba2Config] = TypeAdapter(
    Annotated[MambaConfig | Mamba2Config, Field(discriminator="model_type")]
)


def parse_config(text: str, path: str) -> MambaConfig | Mamba2Config:
    """The text of a config.json, or a ValueError that says what of it we cannot read."""
    try:
        return _CONFIG.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part not in ("mamba", "mamba2"))
        raise ValueError(
            f"{path}: {where or 'model_type'}: {first['msg']} (found {str(first['input'])[:80]!r}). from_pretrained "
            f"reads Hugging Face checkpoints of model_type mamba and mamba2 with SiLU; their relatives differ inside."
        ) from error


def from_pretrained(path: str | PathLike[str], *, dtype: torch.dtype = torch.float32) -> BlockModel:
    """The model in a local folder written by `save_pretrained` of transformers' Mamba or Mamba-2.

    Paper: Eq. 1 (`eq:output_block`); the language models it is about are these blocks, stacked.
    """
    folder = Path(path)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"{folder} has no config.json. from_pretrained reads a local folder written by transformers' "
            f"save_pretrained; it downloads nothing."
        )
    try:
        text = (folder / "config.json").read_bytes().decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{folder / 'config.json'} is not a text in UTF-8 ({error}).") from error
    config = parse_config(text, str(folder / "config.json"))
    tensors: dict[str, Tensor] = {}
    for file in weight_files(folder):
        tensors |= {_our_name(name): tensor for name, tensor in read_tensors(folder / file)[1].items()}
    check_weights(tensors, folder)
    _check_size(config, tensors, folder)
    head = tensors.pop("lm_head.weight", None)
    tensors["E"] = tensors.pop("embeddings.weight").T
    if not config.tie_word_embeddings:
        if head is None:
            raise ValueError(
                f"{folder} has no lm_head.weight, and its config does not tie the head to the embedding: this is a "
                f"model without a head. Save a ...ForCausalLM instead."
            )
        tensors["W_head"] = head.T
    _check_shapes(config, tensors, folder)
    model = config.blank_model().to(dtype)
    load_weights(model, {name: tensor.to(dtype) for name, tensor in config.adapted(tensors).items()}, folder)
    return model


def weight_files(folder: Path) -> list[str]:
    """Names of the safetensors of a folder; ValueError or OSError if one is missing, or named outside of it."""
    if (folder / SINGLE).is_file():
        files = [SINGLE]
    elif (folder / INDEX).is_file():
        files = _shards(folder)
    else:
        pickled = sorted(file.name for file in folder.iterdir() if file.suffix in (".bin", ".pt", ".pth", ".ckpt"))
        found = f"; {pickled[0]} is pickled, and unpickling can run any code in the file" if pickled else ""
        raise FileNotFoundError(
            f"{folder} has neither {SINGLE} nor {INDEX}{found}. Load it with transformers where you trust it, and "
            f"save_pretrained(folder) writes safetensors."
        )
    for name in files:
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / INDEX} names {name}, which is not there. Download the folder again.")
        _check_inside(folder, folder / name)
    return files


def _check_inside(folder: Path, file: Path) -> None:
    """Refuse a link that leads out of a folder; a snapshot of the Hugging Face cache links to the blobs beside it."""
    place, target = folder.resolve(), file.resolve()
    blobs = place.parent.parent / "blobs"
    if not target.is_relative_to(place) and not (place.parent.name == "snapshots" and target.is_relative_to(blobs)):
        raise ValueError(f"{file} is a link that leads out of its folder, to {target}. Name the folder it leads to.")


def _shards(folder: Path) -> list[str]:
    """The files an index names; plain names only, as an index must not reach outside its folder."""
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        names = set(_WEIGHT_MAP.validate_python(index["weight_map"]).values())
    except (ValueError, KeyError, TypeError, RecursionError) as error:  # a ValidationError is a ValueError
        raise ValueError(f"{folder / INDEX} has no map from tensors to files ({type(error).__name__}).") from error
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise ValueError(f"{folder / INDEX} names {name!r}, which is not a safetensors file beside it.")
    return sorted(names)


def _our_name(name: str) -> str:
    """mamba-ssm's names are ours; the wrapper around the layers has two spellings of the embedding."""
    return name.removeprefix("backbone.").replace("embedding.weight", "embeddings.weight")


def _check_size(config: MambaConfig | Mamba2Config, tensors: dict[str, Tensor], folder: Path) -> None:
    """Before anything is built: are sizes and layers those of the file? A config may promise more than memory holds."""
    numbers = {name.split(".")[1] for name in tensors if name.startswith("layers.")}
    layers = {int(number) if number.isdecimal() and len(number) < 10 else -1 for number in numbers}
    embedding = tensors.get("embeddings.weight")
    found = None if embedding is None else tuple(embedding.shape)
    wanted = (config.vocab_size, config.hidden_size)
    if found != wanted or layers != set(range(len(layers))) or len(layers) != config.num_hidden_layers:
        raise ValueError(
            f"{folder}: config.json tells of {config.num_hidden_layers} layers and an embedding of {wanted}, the "
            f"tensors of {len(layers)} and {found}."
        )


def _check_shapes(config: MambaConfig | Mamba2Config, tensors: dict[str, Tensor], folder: Path) -> None:
    """The same for every tensor: the model is built without memory, and its weights are compared with the file's."""
    with torch.device("meta"):
        wanted = config.blank_model().state_dict()
    try:
        found = config.adapted({name: tensor.to("meta") for name, tensor in tensors.items()})
    except RuntimeError as error:
        raise ValueError(f"{folder}: tensors and config.json disagree. {str(error)[:500]}") from error
    check_shapes(wanted, found, folder, "config.json")
    needed = sum(tensor.numel() * tensor.element_size() for tensor in wanted.values())
    require_memory(needed, f"the model of {folder}", "Use a machine with more.")

"""Mamba language models from elsewhere, as our models: traces, implicit attention and state probes then work on them.

Reads a local Hugging Face checkpoint folder: config.json, and safetensors in one file or several. Never pickle:
unpickling runs whatever the file says. Everything is computed in one precision, float32 unless asked otherwise, so
`residual_in_fp32`, which spares residuals from bfloat16, makes no difference here.
"""

import json
from os import PathLike
from pathlib import Path

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError, safe_open
from torch import Tensor

from recallscope.architectures.blocks import BlockModel
from recallscope.architectures.pretrained_config import Mamba2Config, MambaConfig, parse_config

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
_WEIGHT_MAP: TypeAdapter[dict[str, str]] = TypeAdapter(dict[str, str])


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
    config = parse_config((folder / "config.json").read_text(encoding="utf-8"), str(folder / "config.json"))
    tensors = {_our_name(name): tensor.to(dtype) for name, tensor in _read_tensors(folder).items()}
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
    model = config.blank_model().to(dtype)
    try:
        model.load_state_dict(config.adapted(tensors))
    except RuntimeError as error:
        raise ValueError(f"{folder}: tensors and config.json disagree. {str(error)[:500]}") from error
    return model


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of the folder by name."""
    if (folder / SINGLE).is_file():
        files = [SINGLE]
    elif (folder / INDEX).is_file():
        files = _shards(folder)
    else:
        pickled = sorted(file.name for file in folder.iterdir() if file.suffix in (".bin", ".pt", ".pth", ".ckpt"))
        found = f"; {pickled[0]} is pickled, and unpickling runs whatever the file says" if pickled else ""
        raise FileNotFoundError(
            f"{folder} has neither {SINGLE} nor {INDEX}{found}. Load it with transformers where you trust it, and "
            f"save_pretrained(folder) writes safetensors."
        )
    tensors: dict[str, Tensor] = {}
    for name in files:
        try:
            with safe_open(folder / name, framework="pt") as file:
                tensors |= {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{folder / name} cannot be read as safetensors ({error}).") from error
    return tensors


def _shards(folder: Path) -> list[str]:
    """The files an index names; plain names only, as an index must not reach outside its folder."""
    try:
        index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        names = set(_WEIGHT_MAP.validate_python(index["weight_map"]).values())
    except (json.JSONDecodeError, KeyError, TypeError, ValidationError) as error:
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
    layers = {int(name.split(".")[1]) for name in tensors if name.startswith("layers.")}
    embedding = tensors.get("embeddings.weight")
    found = None if embedding is None else tuple(embedding.shape)
    wanted = (config.vocab_size, config.hidden_size)
    if found != wanted or layers != set(range(len(layers))) or len(layers) != config.num_hidden_layers:
        raise ValueError(
            f"{folder}: config.json tells of {config.num_hidden_layers} layers and an embedding of {wanted}, the "
            f"tensors of {len(layers)} and {found}."
        )
    largest = max(size for name, tensor in tensors.items() if name.startswith("layers.0.") for size in tensor.shape)
    told = (config.expand * config.hidden_size, config.state_size, config.conv_kernel, config.details().delta_rank or 1)
    if max(told) > largest:
        raise ValueError(f"{folder}: config.json tells of a size of {max(told)}, no layer is larger than {largest}.")

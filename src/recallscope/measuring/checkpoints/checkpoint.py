"""A causal language model and its tokenizer from a folder with safetensors or a GGUF file: no code, no network."""

import contextlib
import io
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from recallscope.architectures.model import check_weights
from recallscope.architectures.pretrained import weight_files
from recallscope.architectures.ram import require_memory
from recallscope.measuring.checkpoints.gguf_header import GGUFHeader, read_header

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
MOST_TIMES = 2  # the weights of a GGUF file, of the model that it describes
LOADING = 2  # times the weights, while those of a GGUF file are dequantised beside the model that takes them


@dataclass(frozen=True)
class Checkpoint:
    """What can be told of a checkpoint before it is loaded."""

    path: Path
    name: str
    file_bytes: int
    weight_bytes: int
    """in memory, in the precision that was asked for; the largest there may be of a folder"""
    formats: str = ""
    """of the tensors of a GGUF file"""

    def __str__(self) -> str:
        file, memory = (f"{size / 1e9:.2f} GB" for size in (self.file_bytes, self.weight_bytes))
        if self.formats:
            return f"{self.name}: a file of {file} ({self.formats}), dequantised to {memory} in memory"
        return f"{self.name}: {file} of weights"


def find_checkpoint(path: Path, dtype: str = "float32") -> Checkpoint:
    """Read headers only; a ValueError or OSError says what is wrong with the folder or file."""
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r} must be one of {', '.join(DTYPES)}.")
    if path.suffix == ".gguf":
        return _find_gguf(path, DTYPES[dtype].itemsize)
    if not (path / "config.json").is_file():
        raise FileNotFoundError(
            f"{path} has no config.json. A probe reads a local folder written by transformers' save_pretrained, or a "
            f".gguf file; it downloads nothing."
        )
    for file in path.iterdir():
        if not file.resolve().is_relative_to(path.resolve()):
            raise ValueError(
                f"{file} is a link that leads out of the folder, to files that the checkpoint does not own. Copy them "
                f"into it instead."
            )
    if (path / "adapter_config.json").exists():
        raise ValueError(f"{path} holds an adapter beside a model. Merge it into the weights first, and save those.")
    size = sum((path / name).stat().st_size for name in weight_files(path))
    try:
        given = json.loads((path / "config.json").read_text(encoding="utf-8")).get("_name_or_path")
    except (ValueError, AttributeError):
        given = None  # transformers will say what is wrong with it
    name = Path(given).name if isinstance(given, str) else ""
    return Checkpoint(path, name or path.resolve().name, size, size)


def _find_gguf(path: Path, itemsize: int) -> Checkpoint:
    if not path.is_file():
        raise FileNotFoundError(f"{path} is not there. A probe reads a local file; it downloads nothing.")
    with _offline():
        from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES
    header = _header(path)
    known = sorted({*GGUF_SUPPORTED_ARCHITECTURES} - {"general", "tokenizer"})
    if header.family.replace("-", "") not in {name.replace("_", "") for name in known}:
        raise ValueError(
            f"{path} holds a model of the architecture {header.family!r}, which transformers does not read from GGUF "
            f"files; it reads {', '.join(known)}. Use the folder with safetensors that the file was made from."
        )
    name = str(header.fields.get("general.name", path.stem))
    return Checkpoint(path, name, path.stat().st_size, header.weights * itemsize, header.formats)


def _header(path: Path) -> GGUFHeader:
    try:
        header = read_header(path)
    except ImportError as error:
        raise ModuleNotFoundError(
            f"reading {path.name} needs the package gguf: pip install 'recallscope[hf]'.", name="gguf"
        ) from error
    except ValueError as error:
        raise ValueError(f"{path} is not a sound GGUF file: {error}.") from error
    if why := header.why_not():
        raise ValueError(f"{path} is not a sound GGUF file: {why}.")
    return header


def load_checkpoint(path: Path, device: torch.device, dtype: str = "float32") -> tuple[nn.Module, Any]:
    """Model and tokenizer, or a ValueError or OSError that says what is wrong with the folder or file."""
    found = find_checkpoint(path, dtype)
    require_memory(found.weight_bytes, f"the model of {path}", "Use a machine with more.", device)
    if found.formats:
        require_memory(LOADING * found.weight_bytes, f"dequantising {path}", "Use a machine with more.")
    with _offline():
        import transformers

        transformers.utils.logging.set_verbosity_error()  # that a slower kernel is used is no news for a probe
        transformers.utils.logging.disable_progress_bar()
        try:
            load = _load_gguf if found.formats else _load_folder
            model, tokenizer, absent = load(transformers, path, DTYPES[dtype])
        except Exception as error:  # transformers may raise anything for a folder that it does not understand
            first = " ".join(str(error).split())[:300]
            raise ValueError(
                f"transformers cannot read {path} ({type(error).__name__}: {first.rstrip('.')}). A probe needs a "
                f"causal language model that transformers knows by itself, and its tokenizer beside it."
            ) from error
    if absent:
        raise ValueError(
            f"{path} lacks {len(absent)} weights, {absent[0]} first, which transformers would draw at random. "
            f"Save a ...ForCausalLM of the same configuration."
        )
    check_weights(dict(model.named_parameters()), path)
    return model.to(device).eval(), tokenizer


Loaded = tuple[nn.Module, Any, list[str]]  # model, tokenizer, names of weights that the files lack


def _load_folder(transformers: Any, folder: Path, dtype: torch.dtype) -> Loaded:
    safely: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **safely)
    how = safely | {"use_safetensors": True, "dtype": dtype, "output_loading_info": True}
    model, found = transformers.AutoModelForCausalLM.from_pretrained(folder, **how)
    return model, tokenizer, sorted((*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])))


def _load_gguf(transformers: Any, path: Path, dtype: torch.dtype) -> Loaded:
    """As `from_pretrained(gguf_file=...)` does, which needs one more package for it."""
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    file: dict[str, Any] = {"gguf_file": path.name, "local_files_only": True, "trust_remote_code": False}
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, **file)
    config = transformers.AutoConfig.from_pretrained(path.parent, **file)
    with torch.device("meta"):  # which allocates nothing
        announced = sum(weight.numel() for weight in transformers.AutoModelForCausalLM.from_config(config).parameters())
    if announced > MOST_TIMES * (there := _header(path).weights):
        raise ValueError(f"it describes a model of {announced:,} weights and has {there:,}")
    with torch.random.fork_rng(devices=[]):  # weights drawn here are replaced
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    with contextlib.redirect_stderr(io.StringIO()):  # its bar knows no --quiet
        found = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model, torch_dtype=dtype)
    tensors = found["tensors"]
    absent = set(model.load_state_dict(tensors, strict=False, assign=True).missing_keys)
    model.tie_weights()
    tied = {name for name, _ in model.named_parameters(remove_duplicate=False)} - dict(model.named_parameters()).keys()
    return model, tokenizer, sorted(absent - tied)


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """Nothing is asked of a network: the libraries read this setting when they are first imported."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

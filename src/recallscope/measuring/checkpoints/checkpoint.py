"""A causal language model and its tokenizer from a folder on disk: safetensors only, no code from it, no network."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from recallscope.architectures.model import check_weights
from recallscope.architectures.pretrained import weight_files
from recallscope.architectures.ram import require_memory

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_checkpoint(folder: Path, device: torch.device, dtype: str = "float32") -> tuple[nn.Module, Any]:
    """Model and tokenizer, or a ValueError or OSError that says what is wrong with the folder."""
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(
            f"{folder} has no config.json. A probe reads a local folder written by transformers' save_pretrained; it "
            f"downloads nothing."
        )
    if dtype not in DTYPES:
        raise ValueError(f"dtype={dtype!r} is none of {', '.join(DTYPES)}.")
    for path in folder.iterdir():
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ValueError(
                f"{path} is a link that leads out of the folder, to files that the checkpoint does not own. Copy them "
                f"into it instead."
            )
    if (folder / "adapter_config.json").exists():
        raise ValueError(f"{folder} holds an adapter beside a model. Merge it into the weights first, and save those.")
    size = sum((folder / name).stat().st_size for name in weight_files(folder))
    require_memory(size, f"the model of {folder}", "Use a machine with more.", device)
    with _offline():
        import transformers

        transformers.utils.logging.set_verbosity_error()  # that a slower kernel is used is no news for a probe
        transformers.utils.logging.disable_progress_bar()
        safely: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **safely)
            how = safely | {"use_safetensors": True, "dtype": DTYPES[dtype], "output_loading_info": True}
            loaded: Any = transformers.AutoModelForCausalLM.from_pretrained(folder, **how)
        except Exception as error:  # transformers may raise anything for a folder that it does not understand
            first = " ".join(str(error).split())[:300]
            raise ValueError(
                f"transformers cannot read {folder} ({type(error).__name__}: {first.rstrip('.')}). A probe needs a "
                f"causal language model that transformers knows by itself, and its tokenizer beside it."
            ) from error
    model, found = loaded
    absent = sorted((*found["missing_keys"], *(name for name, *_ in found["mismatched_keys"])))
    if absent:
        raise ValueError(
            f"{folder} lacks {len(absent)} weights, {absent[0]} first, which transformers would draw at random. "
            f"Save a ...ForCausalLM of the same configuration."
        )
    check_weights(dict(model.named_parameters()), folder)
    return model.to(device).eval(), tokenizer


@contextmanager
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

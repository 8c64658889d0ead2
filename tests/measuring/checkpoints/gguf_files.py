"""Small GGUF files, written as llama.cpp's converter writes them."""

import json
import struct
from pathlib import Path

import numpy as np
from gguf import GGUFWriter
from gguf.constants import MODEL_ARCH, GGMLQuantizationType
from gguf.quants import quantize
from gguf.tensor_mapping import get_tensor_name_map
from probe_models import build, byte_tokenizer

HEADS = {"attention.head_count": 4, "attention.head_count_kv": 2, "feed_forward_length": 48}
STATES = {"ssm.conv_kernel": 4, "ssm.state_size": 8, "ssm.time_step_rank": 2, "ssm.inner_size": 64}
FIELDS = {"llama": HEADS, "mamba": STATES}
NAMES = {"llama": MODEL_ARCH.LLAMA, "mamba": MODEL_ARCH.MAMBA}


def write_gguf(path: Path, family: str, kind: GGMLQuantizationType = GGMLQuantizationType.F32, **fields: int) -> Path:
    """The random model of a family, with its tokenizer; `fields` are metadata to be changed."""
    tokenizer = byte_tokenizer()
    writer = GGUFWriter(path, family)
    writer.add_name("tiny")
    numbers = {"context_length": 512, "embedding_length": 32, "block_count": 2, "vocab_size": len(tokenizer)}
    for name, number in (numbers | FIELDS[family] | fields).items():
        writer.add_uint32(f"{family}.{name}", number)
    writer.add_float32(f"{family}.attention.layer_norm_rms_epsilon", 1e-5 if family == "mamba" else 1e-6)
    vocabulary = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(vocabulary)
    writer.add_token_types([1] * len(vocabulary))
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    names = get_tensor_name_map(NAMES[family], 2)
    for name, tensor in build(family, len(tokenizer)).state_dict().items():
        if family == "mamba" and name == "lm_head.weight":
            continue  # tied
        stem, dot, ending = name.rpartition(".")
        known = names.get_name(name) or names.get_name(stem) + dot + ending
        numbers = _as_llama_cpp_has_it(name, tensor.detach().numpy().astype(np.float32))
        large = numbers.ndim == 2 and numbers.shape[-1] % 32 == 0
        raw = quantize(numbers, kind) if large and kind is not GGMLQuantizationType.F32 else numbers
        writer.add_tensor(known, raw, raw_dtype=kind if raw is not numbers else None)
    for write in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file):
        write()
    writer.close()
    return path


def _as_llama_cpp_has_it(name: str, numbers: np.ndarray) -> np.ndarray:
    if name.endswith("A_log"):
        return -np.exp(numbers)
    if "conv1d.weight" in name:
        return numbers[:, 0]
    if "q_proj" in name or "k_proj" in name:  # pairs that rotate together are neighbours
        heads = HEADS["attention.head_count" if "q_proj" in name else "attention.head_count_kv"]
        return numbers.reshape(heads, 2, -1, numbers.shape[1]).swapaxes(1, 2).reshape(numbers.shape)
    return numbers


def text(words: str) -> bytes:
    """A string of the format."""
    return struct.pack("<Q", len(words)) + words.encode()


def header(tensors: int, fields: int, version: int = 3, magic: bytes = b"GGUF") -> bytes:
    """The beginning of a file."""
    return magic + struct.pack("<IQQ", version, tensors, fields)


def family(name: str) -> bytes:
    """The field that names the architecture."""
    return text("general.architecture") + struct.pack("<I", 8) + text(name)


def array(name: str, kind: int, count: int) -> bytes:
    """The beginning of an array's field."""
    return text(name) + struct.pack("<IIQ", 9, kind, count)


def tensor(name: str, dims: list[int], kind: int = 0, offset: int = 0) -> bytes:
    """What the header says of a tensor."""
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)

"""Checkpoints written by Hugging Face's transformers, read into our models: the same logits, and errors that teach."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Mamba2Config, Mamba2ForCausalLM, MambaConfig, MambaForCausalLM, MambaModel, PreTrainedModel

from closeness import assert_near
from recallscope.architectures.pretrained import from_pretrained
from recallscope.ops.selective_scan import selective_scan_loop
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.train.weights import write_weights

V = 17
MAMBA = {"vocab_size": V, "hidden_size": 20, "state_size": 3, "num_hidden_layers": 2, "use_associative_scan": False}
MAMBA_2 = {"vocab_size": V, "hidden_size": 12, "state_size": 3, "num_hidden_layers": 2, "chunk_size": 8}
MAMBA_2 |= {"num_heads": 6, "head_dim": 4}
VARIANTS: list[dict[str, object]] = [
    {},
    {"tie_word_embeddings": True},
    {"tie_word_embeddings": False},
    {"use_bias": True},
    {"use_conv_bias": False},
    {"layer_norm_epsilon": 1e-2},
    {"residual_in_fp32": False},
    {"conv_kernel": 2, "expand": 1, "num_heads": 3},
    {"use_bias": True, "use_conv_bias": False, "tie_word_embeddings": False, "num_hidden_layers": 3},
]


def write(model: PreTrainedModel, folder: Path, **options: object) -> PreTrainedModel:
    """Random weights, none of them left at a constant, saved as anybody would."""
    g = torch.Generator().manual_seed(0)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=g)
    model.save_pretrained(folder, **options)
    return model.eval()


def draw_tokens() -> torch.Tensor:
    return torch.randint(0, V, (3, 21), generator=torch.Generator().manual_seed(1))


def mamba(**changes: object) -> MambaForCausalLM:
    return MambaForCausalLM(MambaConfig(**MAMBA | {k: v for k, v in changes.items() if k != "num_heads"}))


def mamba_2(**changes: object) -> Mamba2ForCausalLM:
    return Mamba2ForCausalLM(Mamba2Config(**{"n_groups": 1} | MAMBA_2 | changes))


def assert_same_logits(folder: Path, theirs: PreTrainedModel) -> None:
    with torch.no_grad():
        ours, expected = from_pretrained(folder)(draw_tokens()), theirs(draw_tokens()).logits
    assert_near(ours, expected)
    assert expected.std() > 0.1, "the logits must be worth comparing"


@pytest.mark.parametrize("build", [mamba, mamba_2])
@pytest.mark.parametrize("changes", VARIANTS, ids=str)
def test_a_mamba_says_the_same_here(build, changes: dict[str, object], tmp_path: Path) -> None:
    assert_same_logits(tmp_path, write(build(**changes), tmp_path))


@pytest.mark.parametrize("groups", [1, 2, 3, 6])
@pytest.mark.parametrize("bias", [False, True])
def test_heads_may_share_keys_and_queries_in_groups(groups: int, bias: bool, tmp_path: Path) -> None:
    assert_same_logits(tmp_path, write(mamba_2(n_groups=groups, use_bias=bias), tmp_path))
    assert from_pretrained(tmp_path).spec.head_pattern == ("MVA" if groups == 1 else "MHA")


@pytest.mark.parametrize(
    "model",
    [
        lambda: mamba(time_step_rank=7),
        lambda: mamba_2(time_step_limit=(0.0, 0.05)),
        lambda: mamba_2(time_step_limit=(0.01, math.inf)),
    ],
)
def test_delta_may_have_any_rank_and_limits(model, tmp_path: Path) -> None:
    assert_same_logits(tmp_path, write(model(), tmp_path))


@pytest.mark.parametrize("build", [mamba, mamba_2])
def test_a_checkpoint_may_come_in_pieces(build, tmp_path: Path) -> None:
    theirs = write(build(), tmp_path, max_shard_size="2KB")
    assert not (tmp_path / "model.safetensors").exists()
    assert_same_logits(tmp_path, theirs)


def test_half_precision_weights_are_read_in_the_precision_asked_for(tmp_path: Path) -> None:
    theirs = write(mamba().bfloat16(), tmp_path)
    ours = from_pretrained(tmp_path, dtype=torch.float64)
    assert {p.dtype for p in ours.parameters()} == {torch.float64}
    with torch.no_grad():
        expected = theirs.double()(draw_tokens()).logits
        assert_near(ours(draw_tokens()).float(), expected.float())


def test_a_tied_head_stored_twice_is_read_once(tmp_path: Path) -> None:
    theirs = write(mamba(), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    head = {"lm_head.weight": tensors["backbone.embeddings.weight"].clone()}
    save_file(tensors | head, tmp_path / "model.safetensors")
    assert_same_logits(tmp_path, theirs)


@torch.no_grad()
def test_a_loaded_mamba_can_be_taken_apart(tmp_path: Path) -> None:
    """Its trace holds what the recurrence needs (Eq. 2-3): the loop over it gives back ŷ, and its states are there."""
    for build in (mamba_2, mamba):
        theirs = write(build(), tmp_path)
        model = from_pretrained(tmp_path)
        h = model.trace(draw_tokens(), states=True).layers[1].h
        cache = theirs(draw_tokens(), use_cache=True).cache_params
        assert_near(h[:, -1], cache.layers[1].recurrent_states[0])
    trace = model.trace(draw_tokens(), states=True)
    mixer, layer = model.layers[1].mixer, trace.layers[1]
    y_hat = selective_scan_loop(layer.x_hat, layer.delta, mixer.transition(), layer.B, layer.C)
    assert_near(layer.y_hat, y_hat + mixer.D * layer.x_hat)


def test_it_answers_where_asked(tmp_path: Path) -> None:
    write(mamba(tie_word_embeddings=False, use_bias=True), tmp_path)
    model, positions = from_pretrained(tmp_path), torch.tensor([[20, 3], [0, 0], [7, 19]])
    expected = model(draw_tokens()).gather(1, positions[..., None].expand(-1, -1, V))
    assert_near(model.answer(draw_tokens(), positions), expected)


def test_it_is_not_written_in_a_format_that_would_lose_half_of_it(tmp_path: Path) -> None:
    write(mamba(layer_norm_epsilon=1e-3), tmp_path)
    with pytest.raises(ValueError, match="Keep the original folder"):
        write_weights(tmp_path / "weights.safetensors", from_pretrained(tmp_path), MQARSpec(vocab_size=16, num_facts=2))


def test_no_folder_no_model(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no config\.json.*downloads nothing"):
        from_pretrained(tmp_path / "state-spaces" / "mamba-130m-hf")


@pytest.mark.parametrize(
    ("changes", "phrases"),
    [
        ({"model_type": "falcon_mamba"}, ["falcon_mamba", "mamba and mamba2"]),
        ({"model_type": None}, ["model_type"]),
        ({"hidden_act": "gelu"}, ["hidden_act", "gelu", "SiLU"]),
        ({"hidden_size": 21}, ["(17, 21)", "(17, 20)"]),
        ({"num_hidden_layers": 5}, ["5 layers", "of 2"]),
        ({"state_size": 10**8}, ["100000000", "disagree"]),
        ({"state_size": 4}, ["disagree", "A_log", "(40, 4)"]),
        ({"use_bias": True}, ["disagree", "in_proj.bias"]),
        ({"expand": 1.5}, ["expand", "1.5"]),
        ({"vocab_size": -3}, ["vocab_size", "-3"]),
    ],
    ids=str,
)
def test_a_config_that_does_not_fit_says_where(changes: dict[str, object], phrases: list[str], tmp_path: Path) -> None:
    write(mamba(), tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    with pytest.raises(ValueError) as caught:
        from_pretrained(tmp_path)
    for word in phrases:
        assert word in str(caught.value)


def indexed(folder: Path, text: str) -> None:
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    (folder / "model.safetensors.index.json").write_text(text)


def pickled(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'echo oh no'\ntR.")


def with_tensor(folder: Path, change: Callable[[Tensor], Tensor]) -> None:
    tensors = load_file(folder / "model.safetensors")
    name = next(name for name in tensors if "x_proj" in name)
    save_file(tensors | {name: change(tensors[name]).contiguous()}, folder / "model.safetensors")


def without_head(folder: Path) -> None:
    write(MambaModel(MambaConfig(**MAMBA, tie_word_embeddings=False)), folder)


NO_FILE = "not a safetensors file|no map"
SPOILT: dict[str, tuple[Callable[[Path], object], str]] = {
    "pickled": (pickled, r"pytorch_model\.bin is pickled.*save_pretrained"),
    "without a head": (without_head, "without a head.*ForCausalLM"),
    "damaged": (lambda at: (at / "model.safetensors").write_bytes(b"not really"), "is not a safetensors file"),
    "quantised": (lambda at: with_tensor(at, lambda x: x.to(torch.int8)), "int8.*quantised"),
    "nan": (lambda at: with_tensor(at, lambda x: x.index_fill(0, torch.tensor([0]), torch.nan)), "NaN or infinite"),
    "nested index": (lambda at: indexed(at, '{"weight_map":' * 100_000), "no map"),
    "nested config": (lambda at: (at / "config.json").write_text('{"a":' * 100_000), r"config\.json"),
    "config in Latin-1": (lambda at: (at / "config.json").write_bytes(b'{"a": "\xff"}'), "not a text in UTF-8"),
    **{
        f"index to {name}": (lambda at, name=name: indexed(at, json.dumps({"weight_map": {"x": name}})), NO_FILE)
        for name in ("../model.safetensors", "/etc/passwd", "weights.bin", 7)
    },
}  # fmt: skip


@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_folder_is_refused_with_a_sentence(how: str, tmp_path: Path) -> None:
    spoil, message = SPOILT[how]
    write(mamba(), tmp_path)
    spoil(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        from_pretrained(tmp_path)


def test_a_tensor_without_numbers_gives_no_leave_to_build_what_its_shape_says(tmp_path: Path) -> None:
    """[10^6, 0] takes no byte of the file; a config that speaks of 10^6 channels must not be believed for it."""
    write(mamba(), tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    name = next(name for name in tensors if "layers.0.mixer.A_log" in name)
    save_file(tensors | {name.replace("A_log", "more"): torch.zeros(10**6, 0)}, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"expand": 50_000}))
    with pytest.raises(ValueError, match="disagree"):
        from_pretrained(tmp_path)


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    """But those of the cache of Hugging Face are, which keeps the files of all snapshots in one folder."""
    write(mamba(), tmp_path / "elsewhere")
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "config.json").write_bytes((tmp_path / "elsewhere" / "config.json").read_bytes())
    (tmp_path / "given" / "model.safetensors").symlink_to(tmp_path / "elsewhere" / "model.safetensors")
    with pytest.raises(ValueError, match=r"model.safetensors is a link that leads out of its folder"):
        from_pretrained(tmp_path / "given")
    snapshot, blobs = tmp_path / "models--a--b" / "snapshots" / "123", tmp_path / "models--a--b" / "blobs"
    blobs.mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "elsewhere" / name).rename(blobs / name)
        (snapshot / name).symlink_to(Path("../../blobs") / name)
    from_pretrained(snapshot)

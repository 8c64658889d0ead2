"""python benchmarks/published_layers.py [--json] [--rounds 7]

Whole layers as published, forward and backward, one thread: ours against the torch code of transformers (Mamba,
Mamba-2, the gated delta rule of Qwen3-Next) and against mambapy, at equal sizes. Contenders take turns in one process,
and medians of its CPU time are compared: a busy machine slows all alike. Then the cost of our layers at growing
lengths, and the exponent of a power of the length that fits it: 1 is linear.
"""

import argparse
import json
import math
import os
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from mambapy.mamba import MambaBlock
from mambapy.mamba import MambaConfig as MambapyConfig
from shared.turns import medians
from torch import Tensor, nn
from transformers import Mamba2Config, MambaConfig, Qwen3NextConfig
from transformers.models.mamba.modeling_mamba import MambaMixer
from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

from recallscope.architectures.mamba import Mamba2Spec, MambaSpec
from recallscope.specs import ModelSpec, find_architecture

BATCH, D, N, HEADS = 32, 64, 16, 4
LENGTHS, GROWTH = (64, 256), (64, 128, 256, 512, 1024)
OURS: dict[str, ModelSpec] = {
    "Mamba": MambaSpec(embed_dim=D, state_dim=N, conv_width=4, norm="none", residual=False),
    "Mamba-2": Mamba2Spec(embed_dim=D, state_dim=N, num_heads=HEADS, conv_width=4, norm="none", residual=False),
    "Gated DeltaNet": find_architecture("gated_delta_net").published(
        embed_dim=D, state_dim=N, num_heads=HEADS, norm="none", residual=False
    ),
}


def ours(name: str) -> Callable[[Tensor], Tensor]:
    layer = OURS[name].blank_model(4).layers[0]
    layer.draw_weights(torch.Generator().manual_seed(0))
    return layer.mix


def theirs(name: str) -> dict[str, nn.Module]:
    """The same layer by other people."""
    torch.manual_seed(0)
    if name == "Mamba":
        sizes = {"hidden_size": D, "state_size": N, "expand": 2, "conv_kernel": 4, "use_bias": False}
        config = MambaConfig(vocab_size=4, num_hidden_layers=1, use_mambapy=False, use_associative_scan=False, **sizes)
        mambapy = MambaBlock(MambapyConfig(d_model=D, n_layers=1, d_state=N, expand_factor=2, d_conv=4))
        return {"transformers": MambaMixer(config, 0), "mambapy": mambapy}
    if name == "Mamba-2":
        config = Mamba2Config(
            vocab_size=4, hidden_size=D, state_size=N, expand=2, num_heads=HEADS, head_dim=2 * D // HEADS, n_groups=1,
            conv_kernel=4, num_hidden_layers=1, use_bias=False,
        )  # fmt: skip
        return {"transformers": Mamba2Mixer(config, 0)}
    config = Qwen3NextConfig(
        vocab_size=4, hidden_size=D, num_hidden_layers=1, layer_types=["linear_attention"],
        linear_num_value_heads=HEADS, linear_num_key_heads=HEADS, linear_key_head_dim=N,
        linear_value_head_dim=OURS[name].head_dim, linear_conv_kernel_dim=4, hidden_act="silu",
    )  # fmt: skip
    return {"transformers": Qwen3NextGatedDeltaNet(config, 0)}


def one_pass(layer: Callable[[Tensor], Tensor], length: int) -> Callable[[], None]:
    x = torch.randn(BATCH, length, D, generator=torch.Generator().manual_seed(1)).requires_grad_()

    def run() -> None:
        layer(x).square().sum().backward()

    return run


def compare(name: str, length: int, rounds: int) -> list[dict[str, object]]:
    """A row per contender, with its time over ours."""
    others = {who: module.eval() for who, module in theirs(name).items()}
    ways = {who: one_pass(layer, length) for who, layer in ({"ours": ours(name)} | others).items()}
    ms = medians(ways, rounds)
    same = {"layer": name, "length": length, "ours_ms": ms["ours"]}
    return [{**same, "who": who, "ms": ms[who], "times_ours": ms[who] / ms["ours"]} for who in others]


def exponent(name: str, rounds: int) -> dict[str, object]:
    """Least squares of log time on log length."""
    layer = ours(name)
    ms = medians({str(length): one_pass(layer, length) for length in GROWTH}, rounds)
    x, y = [math.log(length) for length in GROWTH], [math.log(ms[str(length)]) for length in GROWTH]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)
    return {"layer": name, "ms": ms, "exponent": slope}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = [row for name in OURS for length in LENGTHS for row in compare(name, length, options.rounds)]
    growth = [exponent(name, options.rounds) for name in OURS]
    if options.json:
        print(json.dumps({"load": os.getloadavg()[0], "threads": 1, "layers": rows, "growth": growth}))
    else:
        print(f"one thread, batch {BATCH}, D {D}, N {N}, load of the machine {os.getloadavg()[0]:.1f}")
        for row in rows:
            print(
                "{layer:15} L {length:4}  {who:12} {ms:8.1f} ms, ours {ours_ms:6.1f} ms: {times_ours:5.1f}x".format(
                    **row
                )
            )
        for found in growth:
            print(f"{found['layer']:15} time grows as length^{found['exponent']:.2f} from {GROWTH[0]} to {GROWTH[-1]}")

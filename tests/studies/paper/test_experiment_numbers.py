"""The numbers that only one experiment needs: the ablations, slopes against m_V, and effective dimensions."""

import numpy as np
import pytest
from pandas import DataFrame
from scipy.special import ndtr

from recallscope.analysis.table import as_table
from recallscope.architectures.mamba import MambaSpec
from recallscope.presets import PRESETS
from recallscope.studies.dn_parts import effective_dimensions, scaled_errors
from recallscope.studies.paper.large_vocab import vocabulary_slopes
from recallscope.studies.paper.minimality import ABLATION_PRESETS, ABLATIONS, ablation_of, ablation_results, minimality
from recallscope.theory.extremes import typical_max
from recallscope.theory.laws.sharing import sharing_law


def ablation_rows():
    (part,) = minimality.parts("small")
    cells = {tuple(cell.fields.items()): cell for cell in part.cells}
    return [{**cell.fields, "test_accuracy": 0.9 + 0.02 * cell.fields["seed"]} for cell in cells.values()]


def test_every_ablation_of_the_paper_is_recognised():
    """Tab. 8: six ablations, five seeds each."""
    ablations = ablation_results(as_table(ablation_rows()))
    assert [result.ablation for result in ablations] == list(ABLATIONS)
    assert all(ablation.accuracies == pytest.approx((0.9, 0.92, 0.94, 0.96, 0.98)) for ablation in ablations)
    assert ablations[0].mean == pytest.approx(0.94)
    assert ablations[0].spread == pytest.approx(np.std([0.9, 0.92, 0.94, 0.96, 0.98]))


def test_every_ablation_is_a_preset_and_a_run_of_the_grid() -> None:
    """The ablations are written once: presets and grid have the same models, from Base down."""
    (part,) = minimality.parts("paper")
    models = list(dict.fromkeys(cell.spec.model for cell in sorted(part.cells, key=lambda cell: cell.spec.seed)))
    assert models == [MambaSpec(**PRESETS[name].model) for name in ABLATION_PRESETS]
    assert [ablation_of({**model.model_dump(), "seed": 0}) for model in models] == list(ABLATIONS)


def test_a_width_that_is_no_ablation_is_refused():
    row = {"transition": "identity", "gate": False, "activation": "none", "conv_width": 3, "seed": 0}
    with pytest.raises(ValueError, match="conv_width=3"):
        ablation_of(row)


def vocab_rows(slope, sizes=(512, 1024, 2048, 4096), length=64, noise=0.0, generator=None):
    found = []
    for V in sizes:
        z = 4.0 - slope * float(typical_max(V)) + (generator.normal(0, noise) if generator else 0)
        found.append(
            {"task": "mqar", "vocab_size": V, "num_facts": length // 4, "length": length, "model": "linear_mamba",
             "embed_dim": 32, "state_dim": 16, "seed": 0, "test_accuracy": float(ndtr(z))}
        )  # fmt: skip
    return found


def test_slopes_are_found_again_for_every_length():
    one, two = vocabulary_slopes(as_table(vocab_rows(1.2) + vocab_rows(1.5, length=128)))
    assert (one.length, two.length) == (64, 128)
    assert (one.slope, two.slope) == (pytest.approx(1.2), pytest.approx(1.5))
    assert one.intercept == pytest.approx(4.0)
    assert one.slope_error == pytest.approx(0, abs=1e-6)


def test_the_standard_error_is_the_spread_of_slopes():
    """500 noisy lines: their standard error agrees with the spread of the slopes within 15 % (it strays by 4 %)."""
    generator = np.random.default_rng(0)
    sizes = (512, 1024, 2048, 4096, 8192, 16384)
    stores = (vocab_rows(1.2, sizes, noise=0.1, generator=generator) for _ in range(500))
    found = [vocabulary_slopes(as_table(rows))[0] for rows in stores]
    spread = np.std([line.slope for line in found])
    assert np.sqrt(np.mean([line.slope_error**2 for line in found])) == pytest.approx(spread, rel=0.15)


def test_perfect_cells_have_no_normal_inverse_and_are_left_out():
    rows = vocab_rows(1.2)
    rows[0]["test_accuracy"] = 1.0
    (line,) = vocabulary_slopes(as_table(rows))
    assert np.isnan(line.normal_inverse[0])
    assert line.slope == pytest.approx(1.2)
    (short,) = vocabulary_slopes(as_table(rows[:2]))
    assert np.isnan(short.slope)


def cells(in_D: float, in_N: float) -> DataFrame:
    """A full model that is a linear one with (in_D D, in_N N)."""
    fields = {"vocab_size": 512, "num_facts": 16, "length": 64}
    return as_table(
        {
            **fields, "embed_dim": D, "state_dim": N,
            "test_accuracy": float(
                sharing_law(vocab_size=512, num_facts=16, embed_dim=in_D * D, state_dim=in_N * N, length=64)
            ),
        }
        for D in (16, 32, 48)
        for N in (4, 8, 16)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("in_D", "in_N", "rule"), [(1.3, 1.3, "(c D, c N)"), (1.3, 1.0, "(c D, N)"), (1.0, 1.7, "(D, c N)")]
)
def test_the_rule_and_its_factor_are_found_on_half_the_cells(in_D: float, in_N: float, rule: str) -> None:
    found = effective_dimensions(cells(in_D, in_N))
    best = found.rules[0]
    assert best.rule == rule
    assert best.factor == pytest.approx(max(in_D, in_N), abs=5e-3)  # the quick form of the law is good to 1e-3
    assert best.error_checked < 1e-3 < min(found.unscaled)
    assert all(other.error_checked > 5e-3 for other in found.rules[1:])


def test_errors_are_measured_less_predicted() -> None:
    assert abs(scaled_errors("(c D, c N)", 1.3, cells(1.3, 1.3))).max() == 0
    assert (scaled_errors("(c D, c N)", 1.0, cells(1.3, 1.3)) > 0).all()


def test_too_few_cells_are_refused() -> None:
    with pytest.raises(ValueError, match="at least two"):
        effective_dimensions(cells(1.0, 1.0)[:2])

"""Laws by name: every entry is complete, domains can be read and computed, and a law may come from any file."""

import json
from pathlib import Path

import numpy as np
import pytest

from recallscope import registry
from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.compare import compare_laws
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.theory.domain import Domain
from recallscope.theory.law import DESIGNED_LAW, LAWS, TRAINED_LAW, Law, find_law, laws_for, register_law
from recallscope.theory.problem import FIELDS, Problem

CELL = {"vocab_size": 512, "num_facts": 16, "embed_dim": 32, "state_dim": 8}
HEADS = {"num_heads": 4, "head_pattern": "MQA"}
OUTSIDE = '''
"""A law in a file of its own."""

import numpy as np

from recallscope.theory.domain import Domain
from recallscope.theory.law import Law


def outside_law(problem):
    """One over one plus the facts.

    Nobody believes it.
    """
    return 1 / (1 + problem.N_f)


LAWS = [Law("outside-law", outside_law, reference="a file", domain=Domain("N <= D"))]
'''


@pytest.mark.parametrize("entry", list(LAWS), ids=lambda entry: entry.name)
def test_every_law_is_complete(entry: Law) -> None:
    assert find_law(entry.name) is entry
    for name in ("summary", "reference", "holds"):
        assert getattr(entry, name), name
    assert set(entry.needs) <= set(FIELDS)
    assert "Paper:" in (entry.function.__doc__ or "")
    problem = Problem(**CELL, **HEADS, task=entry.tasks[-1])
    with np.errstate(all="ignore"):
        p = entry(problem)
    assert p.shape == ()
    assert p == entry(**CELL, **HEADS, task=entry.tasks[-1])
    if entry.domain is not None:
        assert entry.domain.contains(problem.replace(embed_dim=[32, 64])).tolist() == [True, True]
        assert entry.domain.sentence
    assert entry.compared
    assert entry.support
    # nobody has compared it with eight layers, or with a vocabulary of a million
    problem = Problem(vocab_size=512, num_facts=16, embed_dim=60, state_dim=8, num_heads=1, head_pattern="MHA")
    assert not entry.extrapolated(problem)
    assert entry.limits(problem) == ""
    assert entry.limits(problem, num_layers=8) == "extrapolated: compared for Lambda = 1 only"
    assert entry.extrapolated(problem.replace(vocab_size=[512, 10**6])).tolist() == [False, True]


def test_laws_keep_their_order() -> None:
    """Ours and the closest first, the printed forms after them; laws of heads at the end."""
    names = LAWS.names()
    assert names[:3] == ["trained-sharing", "unified-mv", "unified"]
    assert names.index("trained-printed") + 1 == names.index("designed-improved")
    assert names[12:17] == [
        "full-unified-mv", "full-unified", "trained-sharing-heads", "unified-heads-lower", "unified-heads-upper",
    ]  # fmt: skip
    assert [laws_for(designed=how)[0].name for how in (False, True)] == [TRAINED_LAW, DESIGNED_LAW]
    assert {law.name for law in laws_for("mamba")} == {name for name in names if name.startswith("full-")}
    assert laws_for("kda")[0].name == "delta"


def test_a_law_may_hand_heads_to_another() -> None:
    sharing = find_law("trained-sharing")
    assert sharing.for_pattern(None) is sharing
    assert sharing.for_pattern("MHA") is find_law("trained-sharing-heads")
    assert sharing.for_pattern("MHA").heads
    assert find_law("unified").for_pattern("MHA") is find_law("unified")
    for name in ("unified", "designed-exact"):  # without a pattern heads count as one
        assert find_law(name)(**CELL, num_heads=4) == find_law(name)(**CELL)


def test_a_law_without_a_comparison_extrapolates_everywhere() -> None:
    plain = Law(name="plain", function=lambda problem: problem.N)
    assert plain.extrapolated(**CELL)
    assert plain.limits(**CELL) == "extrapolated: compared with no measurement"


def test_the_nearest_comparison_names_what_is_broken() -> None:
    sharing = find_law("trained-sharing")
    fields = {"vocab_size": 1024, "num_facts": 16}
    beyond = "extrapolated: compared for 8 <= D <= 64, 4 D <= V only"
    assert sharing.limits(**fields, embed_dim=514, state_dim=2) == beyond
    assert sharing.limits(**fields, embed_dim=64, state_dim=16, task="ar") == ""
    assert sharing.limits(vocab_size=128, num_facts=8, embed_dim=68, state_dim=3) == ""
    for V, N_f, D, N in ((256, 8, 256, 3), (512, 16, 256, 5)):  # trained: .08 and .05 below the law
        assert "4 D <= V" in sharing.limits(vocab_size=V, num_facts=N_f, embed_dim=D, state_dim=N)
    assert "N >= 3" in sharing.limits(vocab_size=128, num_facts=8, embed_dim=68, state_dim=2, task="ar")
    assert sharing.limits(vocab_size=512, num_facts=16, embed_dim=64, state_dim=1).endswith("N >= 2 only")
    assert Domain("N >= 2", task="mqar").broken(Problem(**CELL, task="ar")) == ("MQAR",)
    assert Domain("N >= 2", task="mqar").sentence == "MQAR: N >= 2"


def test_outside_its_domain_a_number_has_no_meaning() -> None:
    exact = find_law("designed-exact")  # N orthonormal rows of R^D
    assert exact.in_domain(**CELL | {"state_dim": [8, 33]}).tolist() == [True, False]
    assert find_law("unified").in_domain(**CELL)


def test_a_probability_is_at_most_one() -> None:
    N = np.arange(1, 513)
    for embed in (512, 2048):
        p = find_law("designed-exact")(vocab_size=64, num_facts=2, embed_dim=embed, state_dim=N, task="ar")
        assert np.max(p) <= 1


def test_what_holds_in_letters_is_a_domain() -> None:
    domain = find_law("designed-improved").domain
    assert domain.sentence == find_law("designed-improved").holds
    problem = Problem(vocab_size=[512, 512, 64, 512], num_facts=[16, 16, 16, 1], embed_dim=32, state_dim=[8, 33, 8, 8])
    assert domain.contains(problem).tolist() == [True, False, False, False]
    shortest = Domain("L = 4 N_f")
    assert shortest.contains(Problem(**CELL))
    assert not shortest.contains(Problem(**CELL, length=128))
    assert shortest.contains(Problem(**CELL, task="ar"))  # its length is its own
    layers = find_law("trained-sharing").extrapolated(Problem(**CELL, num_layers=[1, 2]))
    assert layers.tolist() == [False, True]


def test_domains_are_sums_of_products() -> None:
    problem = Problem(**CELL)
    assert Domain("V >= 2 N_f + 2", "N D - 2 N_f > 0.5 D", "M = 1", "G <= L").contains(problem)
    assert not Domain("V < 2 N_f + 2").contains(problem)
    assert Domain("N <= D") == Domain("N <= D") != Domain("N < D")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("N", "compares nothing"),
        ("N <= ", "neither a number"),
        ("N << D", "neither a number"),
        ("V > 4N_f", "'4N_f' is neither a number"),
        ("N <= E", "'E' is neither a number nor one of V, N_f"),
    ],
)
def test_a_domain_that_cannot_be_read_says_why(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Domain(text)


def test_a_law_says_what_it_needs() -> None:
    with pytest.raises(ValueError, match="'unified' needs embed_dim, state_dim"):
        find_law("unified")(vocab_size=512, num_facts=16)
    with pytest.raises(ValueError, match="'trained-sharing-heads' needs head_pattern"):
        find_law("trained-sharing-heads")(**CELL)
    with pytest.raises(ValueError, match="one layer only"):
        find_law("trained-sharing-heads")(**CELL, **HEADS, num_layers=2)
    with pytest.raises(ValueError, match=r"law='unfied' is not registered. Did you mean unified"):
        find_law("unfied")


def test_fields_of_a_law_are_checked_and_its_name_is_its_own() -> None:
    with pytest.raises(ValueError, match="weights='learnt' must be one of trained, designed"):
        Law("a law", lambda problem: problem.N, weights="learnt")
    with pytest.raises(ValueError, match="needs='state' must be one of"):
        Law("a law", lambda problem: problem.N, needs=("state",))
    with pytest.raises(ValueError, match=r"'unified' is registered twice: by recallscope\.theory\.laws\.paper"):
        register_law(Law("unified", lambda problem: problem.N))
    assert find_law("unified").inverse is not None


def test_a_session_registers_a_law_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_new_laws(monkeypatch)
    session_law = Law("session-law", lambda problem: problem.N, summary="N")
    register_law(session_law)
    assert find_law("session-law") is session_law
    assert LAWS.names()[-1] == "session-law"


def forget_new_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LAWS.names()  # all of the package's are loaded
    for owner, name in ((LAWS, "_entries"), (LAWS, "_origins"), (registry, "_loaded")):
        monkeypatch.setattr(owner, name, dict(getattr(owner, name)))


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A law from a file that the package does not know."""
    forget_new_laws(monkeypatch)
    file = tmp_path / "my_law.py"
    file.write_text(OUTSIDE)
    monkeypatch.setenv(registry.PLUGINS, str(file))
    return file


def test_a_law_from_a_file_outside_is_a_law_like_the_others(outside: Path, run) -> None:
    found = find_law("outside-law")
    assert found.summary == "One over one plus the facts."
    assert found(**CELL) == pytest.approx(1 / 17)
    assert LAWS.origin("outside-law") == str(outside)
    flags = ["--vocab-size", 512, "--num-facts", 16, "--embed-dim", 32, "--state-dim", 8]
    code, out, _ = run("predict", *flags, "--json")
    assert code == 0
    assert json.loads(out)["rows"][0]["laws"]["outside-law"] == pytest.approx(1 / 17)
    listed = json.loads(run("laws", "--json")[1])["laws"][-1]
    assert (listed["name"], listed["holds"], listed["domain"]) == ("outside-law", "N <= D", ["N <= D"])
    sized = json.loads(run("size", "--target", 0.1, *flags[:2], *flags[4:], "--law", "outside-law", "--json")[1])
    assert sized["answer"]["num_facts"] == 9


def test_a_law_from_a_file_outside_is_compared_with_measurements(outside: Path) -> None:
    empty = AccuracyGrid.over({"embed_dim": [8, 16], "state_dim": [4, 8]}, MQARSpec(vocab_size=128, num_facts=8))
    closest = compare_laws(AccuracyGrid.from_law(find_law("outside-law"), empty))[0]
    assert (closest.law, closest.max_error) == ("outside-law", 0)


def test_laws_of_heads_are_compared_where_there_are_heads() -> None:
    task = MQARSpec(vocab_size=128, num_facts=8)
    fields = {"embed_dim": [8, 16], "state_dim": [4, 8]}
    several = AccuracyGrid.over(fields, task, num_heads=4, head_pattern="MQA", expand=2)
    measured = AccuracyGrid.from_law(find_law("trained-sharing-heads"), several)
    assert compare_laws(measured)[0].law == "trained-sharing-heads"
    assert all("heads" not in found.law for found in compare_laws(AccuracyGrid.over(fields, task)))


def test_the_laws_with_a_closed_inverse_are_these() -> None:
    inverse = {entry.name for entry in LAWS if entry.inverse is not None}
    assert inverse == {prefix + name for prefix in ("", "designed-", "full-") for name in ("unified", "unified-mv")}

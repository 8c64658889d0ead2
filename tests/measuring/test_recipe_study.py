"""The recipe study's pages show what its records say, and its rule is applied as it is written."""

from types import SimpleNamespace

from commands import ROOT, script

study = script("results/recipe/make.py")


def test_its_tables_are_those_of_its_records(monkeypatch):
    monkeypatch.chdir(ROOT)
    for page, text in study.pages().items():
        assert page.read_text(encoding="utf-8") == text, f"{page.name}: python results/recipe/make.py --tables"


def test_the_winner_is_behind_in_the_fewest_pairs_and_moves_no_minimal_memory(monkeypatch):
    def decide(memory, others):
        rows = {("a", name): memory for name in study.MEMORIES} | {("a", f"m{i}"): row for i, row in enumerate(others)}
        every = {
            pair: {arm: [SimpleNamespace(test_accuracy=p)] * 3 for arm, p in zip(study.ARMS, row, strict=True)}
            for pair, row in rows.items()
        }
        monkeypatch.setattr(study, "results", lambda store: every)
        monkeypatch.setattr(study, "begun", lambda records: 3 * (records[0].test_accuracy > 0.25))
        return study.decision(None)[-1]

    steady = (0.9, 0.9, 0.9)
    assert "`curriculum`" in decide(steady, [(0.25, 0.25, 0.99)] * 8)
    assert "`target`" in decide(steady, [(0.99, 0.985, 0.98)] * 8), "equal: the simplest"
    assert "`mixture`" in decide(steady, [(0.95, 0.97, 0.94)] * 7 + [(0.9, 0.99, 0.99)])
    assert "`mixture`" in decide((0.9, 0.9, 0.87), [(0.25, 0.6, 0.99)] * 8), "curriculum moves a minimal memory"
    assert "Undecided" in decide(steady, [(0.25, 0.25, 0.99)] * 7 + [(0.2, 0.2, 0.2)])

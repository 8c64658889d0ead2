"""Records of probes: found again, checked, never lost; read without torch."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from planted import Planted
from probe_models import word_tokenizer

import recallscope as rs
from recallscope.measuring.checkpoints.page import compared, compared_warning, probe_page
from recallscope.measuring.checkpoints.probe import Probe
from recallscope.measuring.checkpoints.record import find_probes, keep_probe, probe_id, probes_in, read_probe
from recallscope.records import RecordError, record_text
from recallscope.runs.store import RunStore

COMMITTED = Path(__file__).parents[3] / "results" / "probe"
SMOLLM2 = "SmolLM2-135M-Instruct"


@pytest.fixture(scope="module")
def record():
    return rs.probe(Planted(103, 8), word_tokenizer(), name="a/b <i>", num_sequences=2, max_facts=32, layers=True)


def test_a_record_comes_back_as_it_was(record, tmp_path):
    path = keep_probe(record, tmp_path / "store")
    assert path.parent == tmp_path / "store" / "probes"
    assert "/" not in path.name
    assert read_probe(path) == record
    assert list(probes_in(tmp_path / "store")) == [record]
    assert RunStore(tmp_path / "store").names() == []


def test_records_of_schema_1_keep_their_counts_and_are_estimated_again():
    path = next((COMMITTED / "store" / "probes").glob("mamba-0a4b*"))
    written, found = json.loads(path.read_text()), read_probe(path)
    assert (written["schema_version"], found.schema_version) == (1, 2)
    assert [point.correct_per_context for point in found.points] == [
        point["right_per_context"] for point in written["points"]
    ]
    assert (found.probe, found.keys) == (written["probe"], list(written["keys"]))
    assert (found.settings["candidates"], found.how) == (len(written["values"]), "bare")
    assert found.points[0].greedy_per_context is found.greedy_n_50 is None
    assert found.n_50.interval[0] < found.n_50.num_facts < found.n_50.interval[1]
    assert found.n_50.num_facts == pytest.approx(written["n_50"]["num_facts"], rel=0.1)


def test_words_with_their_tokens_are_read_as_words(record, tmp_path):
    """As records of schema 2 had them while all contexts had the same words."""
    facts = record.model_dump(mode="json") | {"keys": dict.fromkeys(record.keys, 1), "words": "common English words"}
    path = tmp_path / "x.json"
    path.write_bytes(record_text(facts))
    assert read_probe(path).keys == record.keys
    assert "differ in words" in compared_warning([record, read_probe(path)])


@pytest.mark.parametrize("settings", [{"num_facts": [4]}, {"max_facts": 8}, {"min_recall": 0.4}])
def test_the_id_is_that_of_weights_words_and_settings_under_their_stored_names(settings):
    """A renamed option keeps the name that is hashed: `min_recall` is stored as `floor`."""
    probe = Probe(Planted(103, 8), word_tokenizer(), shots=0, **settings)
    names = [
        "template",
        "chat",
        "shots",
        "candidates",
        "num_facts",
        "max_facts",
        "num_sequences",
        "width",
        "max_queries",
        "floor",
        "seed",
        "layers",
        "copies",
        "dtype",
    ]
    assert list(probe.settings) == names
    assert probe.settings["floor"] == settings.get("min_recall", 0.3)
    assert probe.id == probe_id(probe.identity)


def test_every_edit_is_noticed_and_set_aside_not_lost(record, tmp_path):
    path = keep_probe(record, tmp_path)
    sound = path.read_text()
    path.write_text(sound.replace('"recalls": true', '"recalls": false'))
    with pytest.raises(RecordError, match="was edited"):
        read_probe(path)
    assert keep_probe(record, tmp_path) == path
    assert read_probe(path) == record
    (note,) = (tmp_path / "damaged").rglob("note.json")
    assert "was edited" in json.loads(note.read_text())["reason"]
    assert list((tmp_path / "damaged").rglob(path.name))


def test_a_record_that_is_there_stays(record, tmp_path):
    path = keep_probe(record, tmp_path)
    before = path.read_bytes()
    keep_probe(record.model_copy(update={"verdict": "another"}), tmp_path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema_version": 2}', "nothing"])
def test_what_is_no_record_is_a_sentence(text, tmp_path):
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(RecordError, match=r"x\.json"):
        read_probe(tmp_path / "x.json")


def test_records_are_found_by_name_id_and_file(record, tmp_path):
    path = keep_probe(record.model_copy(update={"name": "m"}), tmp_path)
    for name in ("m", record.probe[:6], str(path), "elsewhere/m"):
        assert [found.probe for found in find_probes([name], tmp_path)] == [record.probe]
    with pytest.raises(ValueError, match=r"'x' is no probe in .*: m "):
        find_probes(["x"], tmp_path)
    keep_probe(record.model_copy(update={"name": "m", "probe": "f" * 24}), tmp_path)
    with pytest.raises(ValueError, match="'m' is the name of several probes"):
        find_probes(["m"], tmp_path)


def test_a_page_is_one_file_with_every_text_escaped(record):
    page = probe_page([record, record])
    assert "a/b &lt;i&gt;" in page
    assert "<i>" not in page
    assert "http" not in page
    assert len(compared([record, record])[1]) == 2
    assert "n_50" in record._repr_html_()


def test_records_are_read_and_drawn_without_torch(record, tmp_path):
    path = keep_probe(record, tmp_path)
    code = (
        "import sys; from pathlib import Path\n"
        "from recallscope.measuring.checkpoints.record import read_probe\n"
        "from recallscope.figures.probe import probe_figure\n"
        "from recallscope.figures.style import figure_style, write_figure\n"
        f"path = Path({str(path)!r})\n"
        "with figure_style(): write_figure(probe_figure([read_probe(path)]), Path(f'{path}.png'))\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "probes" / f"{path.name}.png").stat().st_size > 10_000


def test_the_committed_records_say_what_the_page_says():
    """docs/PROBE.md and results/probe/README.md: two seeds within 15 %, the transformer's n_50 larger, and 10 times as
    fast from copies."""
    records = {record.name: record for record in probes_in(COMMITTED / "store") if record.name != SMOLLM2}
    assert set(records) == {"mamba", "mamba-seed-1", "transformer", "transformer-seed-1"}
    assert all(record.recalls and record.copies_differ < 1e-4 for record in records.values())
    for name in ("mamba", "transformer"):
        first, second = records[name], records[f"{name}-seed-1"]
        assert first.identity["weights"] == second.identity["weights"]
        assert first.keys != second.keys
    halves = [records[name].n_50.num_facts for name in ("mamba", "mamba-seed-1")]
    assert max(halves) / min(halves) < 1.15
    for name in ("transformer", "transformer-seed-1"):
        half, last = records[name].n_50, records[name].points[-1]
        assert (half.num_facts or last.num_facts) > max(halves)
        assert half.num_facts or last.recall > 0.5
    page = (COMMITTED / "README.md").read_text(encoding="utf-8")
    for row in compared(list(records.values()))[1]:
        assert " | ".join(row) in page
    fastest = json.loads((COMMITTED / "speed.json").read_text())["rows"][-1]
    assert (fastest["num_facts"], fastest["queries"], fastest["same"]) == (256, 32, True)
    assert fastest["ratio"] >= 10
    assert f"{fastest['ratio']:.0f} times as long" in page


def test_the_committed_records_of_smollm2_are_of_one_model_and_agree_between_seeds():
    """An interval that is right 95 times in 100 misses the estimate of an equal probe 1 time in 6: here 1 of 12."""
    records = [record for record in probes_in(COMMITTED / "store") if record.name == SMOLLM2]
    assert len({record.identity["weights"] for record in records}) == 1
    ways = {(record.how, record.settings["seed"]): record for record in records}
    forms = ("bare", "natural", "bare, chat", "bare, 4 shots", "natural, 4 shots", "bare, 4 shots, chat")
    assert set(ways) == {(form, seed) for form in forms for seed in (0, 1)}
    page = (COMMITTED.parents[1] / "docs" / "PROBE.md").read_text(encoding="utf-8")
    outside = []
    for (form, seed), record in ways.items():
        assert record.recalls
        assert record.copies_differ < 1e-4
        low, high = record.n_50.interval
        assert f"{record.n_50.num_facts:.1f} ({low:.1f} to {high:.1f})" in page
        assert low <= min(record.n_50.interpolated, record.n_50.num_facts)
        assert max(record.n_50.interpolated, record.n_50.num_facts) <= high
        if not low <= ways[form, 1 - seed].n_50.num_facts <= high:
            outside.append((form, seed))
    assert outside == [("natural, 4 shots", 1)]

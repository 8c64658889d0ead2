"""`recallscope doctor` says what is there, what is missing, and what is broken."""

import json

import torch

from recallscope import __version__
from recallscope.cli import doctor


def test_it_names_the_version_and_the_installed_packages(run):
    code, out, err = run("doctor", "--json")
    facts = json.loads(out)
    assert (code, err) == (0, "")
    assert facts["recallscope"] == __version__
    assert facts["problems"] == []
    assert facts["extras"]["core"]["missing"] == []
    assert facts["extras"]["torch"]["versions"]["torch"] == facts["torch"]["version"] == torch.__version__
    assert facts["torch"]["kernels_agree"] in (True, None)
    text = run("doctor")[1]
    assert f"torch {torch.__version__}" in text
    assert facts["torch"]["kernels"] in text


def test_a_missing_or_old_package_names_the_line_that_installs_it(run, monkeypatch):
    needed = {"core": [("numpy", ">=99"), ("pydantic", "<3,>=2.7")], "web": [("no-such-package", ">=1")]}
    monkeypatch.setattr(doctor, "_requirements", lambda: needed)
    code, out, _ = run("doctor")
    assert code == 1
    assert "pip install 'recallscope[web]'" in out
    assert "numpy>=99 (this is " in out.splitlines()[-1]
    assert "pydantic" not in out.splitlines()[-1]


def test_bounds_compare_numbers_not_letters():
    assert doctor._meets("2.14.3", "<3,>=2.7")
    assert not doctor._meets("3.0", "<3,>=2.7")
    assert not doctor._meets("2.6.9", ">=2.7")
    assert doctor._meets("2.13.0+cpu", ">=2.6")


def test_wrong_kernels_are_a_problem(run, monkeypatch):
    monkeypatch.setattr("recallscope.ops.compiled.library", object)
    monkeypatch.setattr(doctor, "_kernels_agree", lambda: False)
    code, out, _ = run("doctor")
    assert code == 1
    assert "delete the cache folder" in out


def test_without_torch_it_says_so_and_nothing_is_broken(run, monkeypatch):
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    monkeypatch.setattr(doctor, "_torch", lambda: 1 / 0)
    code, out, _ = run("doctor", "--json")
    assert (code, json.loads(out)["torch"]) == (0, None)
    assert "need the extra torch" in run("doctor")[1]


def test_a_torch_that_does_not_load_is_a_problem(run, monkeypatch):
    def broken():
        raise ImportError("libtorch.so: not found")

    monkeypatch.setattr(doctor, "_torch", broken)
    code, out, _ = run("doctor")
    assert code == 1
    assert "libtorch.so" in out


def test_the_home_folder_is_not_named(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert doctor._short(tmp_path / "a") == "~/a"
    assert doctor._short(tmp_path.parent / "b") == str(tmp_path.parent / "b")

"""Registries: the package's own names without imports, plugins by file and by entry point, one owner per name."""

import importlib
import pkgutil
from importlib.metadata import EntryPoint, EntryPoints

import pytest

from recallscope import architectures, circuits, registry, tasks
from recallscope.circuits.circuit import CIRCUITS
from recallscope.registry import Registry, UnknownNameError, import_from, import_reference
from recallscope.specs import ARCHITECTURES, TASKS, ModelSpec, architecture, find_architecture
from recallscope.studies import own, paper
from recallscope.studies.experiment import STUDIES


@pytest.mark.parametrize(
    ("packages", "table"),
    [([architectures], ARCHITECTURES), ([tasks], TASKS), ([circuits], CIRCUITS), ([paper, own], STUDIES)],
)
def test_what_the_package_registers_is_in_its_table(packages, table):
    for package in packages:
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    assert {name for name in table.names() if table.origin(name) is None} == set(table.own)
    for name, reference in table.own.items():
        module, _, attribute = reference.partition(":")
        assert table.find(name) is getattr(importlib.import_module(module), attribute)


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="Did you mean linear"):
        ARCHITECTURES.find("liner")
    with pytest.raises(UnknownNameError, match=r"There are: ar, .*mqar, repeated"):
        TASKS.find("xyzzy")
    with pytest.raises(UnknownNameError, match=r"Write nets\.py:MyModel"):
        find_architecture("nets.py")


def test_a_name_has_one_owner():
    with pytest.raises(ValueError, match=r"registered twice: by recallscope\.architectures\.mamba"):
        architecture("linear_mamba")(type("Mine", (ModelSpec,), {"__module__": __name__}))
    fresh = Registry("task", {})
    fresh.add("mine", 1, module="json")
    fresh.add("mine", 2, module="json")  # the same module, imported again
    assert fresh.find("mine") == 2
    with pytest.raises(ValueError, match="registered twice: by json and by csv"):
        fresh.add("mine", 3, module="csv")


PLUGIN = '''
from pydantic import Field
from recallscope import ModelSpec, architecture

@architecture("{name}")
class Spec(ModelSpec):
    """One."""
    size: int = Field(1, description="a size")
'''


@pytest.fixture
def no_plugins(monkeypatch):
    """Registries as they are in a new process."""
    monkeypatch.setattr(registry, "_loaded", {})
    entries, origins = dict(ARCHITECTURES._entries), dict(ARCHITECTURES._origins)
    yield
    ARCHITECTURES._entries, ARCHITECTURES._origins = entries, origins


def test_plugins_come_from_the_environment_and_from_entry_points(no_plugins, tmp_path, monkeypatch):
    (tmp_path / "by_file.py").write_text(PLUGIN.format(name="by_file"))
    (tmp_path / "by_entry_point.py").write_text(PLUGIN.format(name="by_entry_point"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(registry.PLUGINS, str(tmp_path / "by_file.py"))
    point = EntryPoint("mine", "by_entry_point", "recallscope.architectures")
    monkeypatch.setattr(registry, "entry_points", lambda: EntryPoints([point]))
    assert ARCHITECTURES.find("by_file")(size=3).kind == "by_file"
    assert ARCHITECTURES.find("by_entry_point")().identity() == {"kind": "by_entry_point"}
    assert ARCHITECTURES.origin("by_file") == str(tmp_path / "by_file.py")
    assert ARCHITECTURES.origin("by_entry_point") == "by_entry_point"
    assert ARCHITECTURES.origin("linear_mamba") is None


def test_files_of_one_name_do_not_clash_and_a_changed_file_is_read_again(tmp_path):
    for folder, value in (("a", 1), ("b", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "nets.py").write_text(f"value = {value}")
    first, second = (import_from(str(tmp_path / folder / "nets.py")) for folder in "ab")
    assert (first.value, second.value) == (1, 2)
    assert import_from(str(tmp_path / "a" / "nets.py")) is first
    assert import_reference(first.__name__) == str(tmp_path / "a" / "nets.py")
    (tmp_path / "a" / "nets.py").write_text("value = 3")
    assert import_from(str(tmp_path / "a" / "nets.py")).value == 3


def test_a_module_that_is_not_there_is_told_from_one_that_fails(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"there is no module 'no_such_package\.nets'"):
        import_from("no_such_package.nets")
    (tmp_path / "needs_more.py").write_text("import no_such_dependency")
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        import_from("needs_more")

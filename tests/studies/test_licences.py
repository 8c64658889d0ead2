"""Tab. 10 is about licences: everything we build on may be used as we use it."""

import re
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution

import pytest

pytestmark = pytest.mark.surfaces

PERMISSIVE = re.compile(r"MIT|BSD|ISC|Apache|PSF|Python Software Foundation|MPL")


def direct_dependencies(package: str = "recallscope") -> list[str]:
    """Names a package asks for, with all its extras, its own name left out; sorted."""
    wanted = distribution(package).requires or []
    names = {found.group().lower() for text in wanted if (found := re.match(r"[A-Za-z0-9._-]+", text))}
    return sorted(names - {package})


def licence_rows(package: str = "recallscope") -> list[tuple[str, str]]:
    """Each direct dependency that is installed, and its licence as it states it."""
    rows = []
    for name in direct_dependencies(package):
        with suppress(PackageNotFoundError):
            rows.append((name, _licence_of(distribution(name))))
    return rows


def _licence_of(package: Distribution) -> str:
    """The SPDX expression if there is one, else the classifier, else the first line of the licence field."""
    facts = package.metadata
    if expression := facts.get("License-Expression"):
        return str(expression)
    for text in facts.get_all("Classifier") or ():
        if text.startswith("License ::") and "License" in (said := text.split(" :: ")[-1]):
            return str(said)
    return (str(facts.get("License") or "").strip().splitlines() or ["not stated"])[0]


def test_every_dependency_has_a_permissive_licence() -> None:
    rows = licence_rows()
    assert {"numpy", "scipy", "pydantic", "tyro", "rich"} <= {name for name, _ in rows}
    assert [row for row in rows if not PERMISSIVE.search(row[1])] == []


def test_all_extras_are_looked_at() -> None:
    assert {"torch", "matplotlib", "ray", "starlette", "transformers", "ruff"} <= set(direct_dependencies())

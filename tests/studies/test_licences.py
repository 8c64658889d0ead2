"""Tab. 10 is about licences: everything we build on may be used as we use it."""

from __future__ import annotations

import re

import pytest

from recallscope.studies.report import direct_dependencies, licence_rows

pytestmark = pytest.mark.surfaces

PERMISSIVE = re.compile(r"MIT|BSD|ISC|Apache|PSF|Python Software Foundation|MPL")


def test_every_dependency_has_a_permissive_licence() -> None:
    rows = licence_rows()
    assert {"numpy", "scipy", "pydantic", "tyro", "rich"} <= {name for name, _ in rows}
    assert [row for row in rows if not PERMISSIVE.search(row[1])] == []


def test_all_extras_are_looked_at() -> None:
    assert {"torch", "matplotlib", "ray", "starlette", "transformers", "ruff"} <= set(direct_dependencies())

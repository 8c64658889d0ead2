"""Licences of the software this package builds on, as the installed packages state them.

Paper: Tab. 10 (`tab:licenses`), which lists mamba-ssm, zoology, mamba-tiny and PyTorch. Of these only PyTorch is used
here; none of the others' code is copied.
"""

from __future__ import annotations

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution

_NAME = re.compile(r"[A-Za-z0-9._-]+")


def direct_dependencies(package: str = "recallscope") -> list[str]:
    """Names a package asks for, with all its extras, its own name left out; sorted."""
    wanted = distribution(package).requires or []
    names = {found.group().lower() for text in wanted if (found := _NAME.match(text))}
    return sorted(names - {package})


def licence_rows(package: str = "recallscope") -> list[tuple[str, str]]:
    """Each direct dependency that is installed, and its licence."""
    rows = []
    for name in direct_dependencies(package):
        try:
            rows.append((name, licence_of(distribution(name))))
        except PackageNotFoundError:
            continue
    return rows


def licence_of(package: Distribution) -> str:
    """The SPDX expression if there is one, else the classifier, else the first line of the licence field."""
    facts = package.metadata
    expression = facts.get("License-Expression")
    if expression:
        return str(expression)
    classifiers = [
        text.split(" :: ")[-1] for text in facts.get_all("Classifier") or () if text.startswith("License ::")
    ]
    named = [text for text in classifiers if "License" in text]
    if named:
        return named[0]
    return (str(facts.get("License") or "").strip().splitlines() or ["not stated"])[0]

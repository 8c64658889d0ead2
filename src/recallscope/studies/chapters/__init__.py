"""Chapters of the report that are pages of their own, each a function from runs to a `Chapter`.

Findings belong in the studies.
"""

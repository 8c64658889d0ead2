"""The laws, a module per idea; every module here is imported when a law is first asked for.

The catalogue lists the laws in the order of these imports, and after them those of modules that are not named here.
"""

from recallscope.theory.laws import sharing, paper, designed, heads  # noqa: F401  # isort: skip

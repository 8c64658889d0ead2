"""The laws, a module per idea, each ending with its list `LAWS`; `MODULES` of `theory/law.py` lists them.

What several laws use belongs in `theory`.
"""

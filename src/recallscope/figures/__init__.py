"""Figures: data in, Axes or Figure out. Needs matplotlib (`pip install 'recallscope[figures]'`).

Loading, fitting and choosing seeds belong in `runs` and `analysis`. Modules that must load without matplotlib
import from here inside their functions.
"""

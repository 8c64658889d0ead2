"""The paper's nine experiments, one file each, listed in `STUDIES` of `studies/experiment.py`.

What two studies share belongs in a module of `studies`.
"""

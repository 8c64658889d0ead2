"""Numbers from runs: accuracy grids, collapse fits, comparisons with the laws, seed noise.

Takes rows or grids and returns numbers. Reading stores belongs in `runs`, plots in `figures`.
"""

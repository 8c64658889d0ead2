"""The paper's experiments and our own, each one file with its runs, findings and figures; claims; the report.

Only `cli` and `web` import it: everything else would stand unchanged if the paper were another one.
"""

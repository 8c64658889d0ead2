"""The paper's nine experiments, one file each; each is a line of `STUDIES` in studies/experiment.py."""

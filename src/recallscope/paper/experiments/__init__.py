"""The experiments of the paper, one file each; a new file that registers an experiment is found without any list."""

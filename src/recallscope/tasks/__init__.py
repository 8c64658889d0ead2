"""Tasks: a spec per file, batches of associative recall, and scores of the answers.

Models belong in `architectures`.
"""

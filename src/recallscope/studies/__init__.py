"""Claims of the paper, the studies that test them and our own, and the report; nothing below this package knows of it.

`paper/` has the paper's experiments, `own/` ours; a study is one file and imports no other study. What two studies
share is a module beside this file. What would stand if the paper were another one belongs in another package.
"""

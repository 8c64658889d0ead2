"""Our own studies, one file each; no claim of the paper is behind their findings."""

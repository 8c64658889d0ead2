"""The commands, one file each: flags, one call, one output.

What a command computes belongs in the package that it calls.
"""

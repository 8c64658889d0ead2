"""Chapters of the report that are pages of their own, one file each: tables of what studies measured, in plain words.

A chapter reads studies and is read by the report alone; a finding, a figure or a law does not belong here.
"""

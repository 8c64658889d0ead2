"""Runs: grids of them, each done once on this machine or a cluster, and stored as plain files.

Reading, planning and driving need no torch; only workers load it. What is computed from results belongs in
`analysis`.
"""

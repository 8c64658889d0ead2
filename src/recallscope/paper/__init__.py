"""This paper: its claims, its experiments with their figures and findings, and the report on what holds."""

from recallscope.paper.claims import CLAIMS, Claim, Kind, Status, all_labels, all_numbers, claim

__all__ = ["CLAIMS", "Claim", "Kind", "Status", "all_labels", "all_numbers", "claim"]

"""How many facts a pretrained language model holds, on disk or in memory.

Models that recallscope trains are measured in `measuring`.
"""

"""Looking inside a model: answers, operators, hash table, attention, and interventions on its state.

Everything works by capability (`architectures/capabilities.py`), for any model that has it. Nothing here trains.
"""

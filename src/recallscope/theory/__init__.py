"""Laws and what they need: problems, domains, quadrature, bounds, and solving for a size. Needs no torch.

Comparing a law with runs belongs in `analysis`.
"""

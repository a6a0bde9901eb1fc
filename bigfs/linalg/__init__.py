"""Linear algebra that several methods share: proximal operators, shifted conjugate gradients, the
weighted ridge.
"""

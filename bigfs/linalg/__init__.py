"""Linear algebra for several methods: proximal operators, shifted systems, the weighted ridge."""

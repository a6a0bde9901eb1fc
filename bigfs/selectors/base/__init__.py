"""The parts of all selectors: the estimator, its input and labels, shared parameters."""

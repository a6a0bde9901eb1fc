"""The evaluation of a selection: folds, linear models, scores, curves, and their statistics."""

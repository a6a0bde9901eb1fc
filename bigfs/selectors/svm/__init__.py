"""Linear SVMs: their weights, and elimination by them."""

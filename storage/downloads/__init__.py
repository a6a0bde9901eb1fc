"""Public corpora by name, and files behind URLs."""

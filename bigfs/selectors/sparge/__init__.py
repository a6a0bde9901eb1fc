"""SparGE: m features together, with bounds of how good they can be."""

"""How a source becomes a store: pieces, scratch files, both layouts, one rename."""

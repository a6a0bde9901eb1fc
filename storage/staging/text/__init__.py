"""Terms of documents: split, counted, merged, weighed."""

"""The layout of a store on disk: its manifest, verified reads, the writer."""

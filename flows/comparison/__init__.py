"""A comparison of methods: its runs, their results, the ranks and the report."""

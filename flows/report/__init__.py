"""The report of a run: its page, its scores and status in words, its origin and costs."""

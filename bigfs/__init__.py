"""Feature selection for data that does not fit in memory."""

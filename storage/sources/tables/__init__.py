"""Files of records: CSV, Parquet and JSON Lines, with a text or with columns of numbers."""

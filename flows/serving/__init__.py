"""The server of `bigfs serve`, and the limits on its runs."""

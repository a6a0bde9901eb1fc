"""What a run tells: its page, its scores and status in words, its origin and costs."""

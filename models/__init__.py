"""What the problem is, and its mathematics."""

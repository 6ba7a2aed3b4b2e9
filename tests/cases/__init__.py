"""What people asked in public threads, the right answer, and ours: one row a question."""

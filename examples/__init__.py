"""Examples: each a spec and, where one is needed, a short script."""

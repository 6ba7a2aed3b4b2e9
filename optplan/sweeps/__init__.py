"""Many problems at once: axes, workers, and the table that outlives them."""

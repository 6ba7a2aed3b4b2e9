"""What it costs: pure functions from layout to seconds and bytes, for scalars and arrays alike."""

"""Measured training runs: read from tables, expressed as problems, priced and scored."""

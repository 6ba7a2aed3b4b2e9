"""Measured runs: tables, expressions, fits and scores."""

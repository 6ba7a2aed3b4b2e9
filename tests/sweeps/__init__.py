"""Sweeps: axes, rows, the table, kills, clusters."""

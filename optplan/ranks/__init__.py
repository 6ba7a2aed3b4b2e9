"""Processes that work together on one machine: started, watched, and their end told."""

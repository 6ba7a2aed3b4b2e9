"""Tests of the planner itself."""

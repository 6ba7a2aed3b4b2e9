"""Tests of the rules, both faces of each."""

"""Tests of launch files."""

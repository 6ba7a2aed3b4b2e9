"""Layouts of a small transformer really trained, each in processes of its own."""

"""Profiles and measured layouts."""

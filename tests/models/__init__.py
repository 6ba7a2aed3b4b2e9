"""Tests of the models: specifications, data and costs."""

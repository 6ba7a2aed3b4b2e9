"""A machine timed part by part, and the constants of the cost model that come out."""

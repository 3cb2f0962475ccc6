"""Deciding: the one place that owns each sandbox's life."""

"""Speaking: the HTTP surface."""

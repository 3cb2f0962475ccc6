"""Tests that run inside deepagents' environments, against a real Paddock server."""

# They run inside those environments.
collect_ignore = ["suite"]

"""Benchmarks. Each table in docs/benchmarks.md is printed by one of these programs."""

"""Shared parts of providers that run sandboxes with Paddock's own agent: directories and records, egress, seccomp
filter."""

"""The isolation level ``hardened``: a sandbox on a kernel of its own, gVisor's, inside all that the others have."""

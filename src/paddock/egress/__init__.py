"""Where a sandbox may connect to: the policy, the proxy that enforces it, and the record of every connection."""

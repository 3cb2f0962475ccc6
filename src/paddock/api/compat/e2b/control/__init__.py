"""E2B's control plane: sandboxes, lists, timeouts, metrics and logs."""

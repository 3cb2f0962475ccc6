"""The lifecycle of sandboxes: states, transitions, deadlines, reconciliation and the warm pool."""

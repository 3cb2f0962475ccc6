"""E2B's control plane: sandboxes, their lists, their ends, and what there is to see of them."""

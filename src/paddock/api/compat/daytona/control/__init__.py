"""The control plane: sandboxes and what is said about them."""

"""What this machine can do, and whether its sandboxes hold: ``paddock doctor`` and the escape suite."""

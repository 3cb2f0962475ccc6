"""What this machine supports, and whether its sandboxes are secure: ``paddock doctor`` and the escape suite."""

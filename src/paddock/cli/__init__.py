"""The ``paddock`` command: one module per noun, nothing heavy imported before it is needed."""

"""The ``paddock`` command: one module per noun; heavy modules are imported only when needed."""

"""Container images without an engine: fetched from registries or files, unpacked once, shared by the sandboxes."""

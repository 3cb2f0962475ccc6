"""What providers that run sandboxes with Paddock's own agent stand on: folders and records, the way out, the filter."""

"""Getting machines and ending them."""

"""Options: each a field of a frozen group, which is its flag, its keyword and its default."""

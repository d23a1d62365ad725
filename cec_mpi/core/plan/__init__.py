"""Plans of steps: optimal loads (Theorem 1) and assignments of rows (Algorithm 1)."""

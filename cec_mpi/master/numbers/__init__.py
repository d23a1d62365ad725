"""What a step's numbers are kept in on rank 0, and how exact they are."""

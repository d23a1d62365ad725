"""A store while it is made: X read, scaled, multiplied and written, with a journal of it."""

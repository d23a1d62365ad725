"""Wrong answers: how small ones parity and other checks see, and whose they are."""

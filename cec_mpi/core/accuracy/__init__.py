"""What rounding does to numbers, and what keeps them in range: roundoff, scaling, verdicts."""

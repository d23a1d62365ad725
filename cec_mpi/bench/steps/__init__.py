"""Whole steps beside what makes the same result with less, or did so before."""

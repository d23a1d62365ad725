"""Answers of a step, and their decoding."""

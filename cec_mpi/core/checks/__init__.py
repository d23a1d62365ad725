"""Checks of answers: which errors they detect, and which machine is wrong."""

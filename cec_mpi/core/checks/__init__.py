"""Checks of answers, which detect errors and identify faulty machines."""

"""Availability of machines over time: models, files and commands."""

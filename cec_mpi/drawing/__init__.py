"""Assignments as people see them: on a terminal, as SVG, and as PNG and PDF."""

"""Pictures of assignments, on a terminal and as SVG, PNG and PDF."""

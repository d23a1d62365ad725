"""Pictures of assignments: tables on a terminal, and SVG, PNG and PDF files."""

"""Options of commands and functions, defined once as fields of frozen dataclasses."""

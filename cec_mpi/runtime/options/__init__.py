"""Options of commands and functions: each is a field of a frozen dataclass, written once."""

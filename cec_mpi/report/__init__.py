"""What a run was like, for people: from its records to a page and to pictures.

May import: `core`, `drawing`, `files`.
"""

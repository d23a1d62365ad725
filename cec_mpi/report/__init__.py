"""What a run left, as a page that people look at: read in a stream, summed up, put into words.

May import: `core`, `files`, `records`.
"""

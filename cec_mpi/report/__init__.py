"""What a run recorded, as a page to look at.

May import: nothing.
"""

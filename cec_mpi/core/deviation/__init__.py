"""How far the result of a step can be from exact, and how far it is likely to be."""

"""One step as mathematics: answers put together, whichever machines gave them."""

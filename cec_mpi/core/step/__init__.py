"""A step as mathematics: products, answers, decoding, and costs."""

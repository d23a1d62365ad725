"""The mathematics of coded elastic computing: numbers in, values out."""

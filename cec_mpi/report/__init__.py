"""What a run left, as a page and as pictures: read in a stream, summed up, put into words."""

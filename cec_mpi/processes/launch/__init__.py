"""Who launched the processes, and where they run: facts, and what is wrong with them."""

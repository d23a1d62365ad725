"""Files as they have to be read and written where others write too, and where power fails."""

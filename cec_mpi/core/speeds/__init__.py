"""How fast machines are: as a user says, or as their times tell."""

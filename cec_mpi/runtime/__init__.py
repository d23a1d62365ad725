"""How machines make a step: the master, the wires, sessions, machines, and what they record."""

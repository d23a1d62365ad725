"""Shards of a store on machines: who has which, and who takes over which."""

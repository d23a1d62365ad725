"""An elastic step as a state machine: events go in, instructions come out.

It decides which machines compute what, and what happens when one is late, lost or wrong. It knows
numbers of machines, intervals of rows and moments that it is given, and nothing else: no network,
no clock, no log and no products. `master.elastic` connects it with a hub and with NumPy.
"""

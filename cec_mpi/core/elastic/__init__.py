"""An elastic step as a state machine: events go in, instructions come out.

It decides which machines compute which rows, and what happens when a machine is late, lost or
faulty. Its data are machine numbers, intervals of rows and times passed as arguments. It has no
network, no clock, no log and no arrays: `runtime.master.elastic` connects it with a hub and NumPy.
"""

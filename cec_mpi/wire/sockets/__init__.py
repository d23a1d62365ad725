"""Processes that come by themselves, as jobs of their own: messages over sockets of ZeroMQ.

Everything is encrypted (CURVE), and who does not have the keys of the connection file is not
heard. What comes from a machine is read as numbers and JSON, and never unpickled.

May import: `core`, `files`, `machine`, `processes`, `roster`, `terminal`, `wire.jobs`,
`wire.lifelines`, `wire.messages`, `wire.opening`, `wire.orders`.
"""

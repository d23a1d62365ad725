"""Messages between the master and machines that come by themselves, over sockets of ZeroMQ.

Machines on the master's host use a Unix socket that only the same user can open. TCP connections
are encrypted (CURVE), and a process without the keys of the connection file is not heard. What
comes from a machine is read as numbers and JSON, and never unpickled.
"""

"""Messages between the master and machines that join, over ZeroMQ sockets.

Machines on the master's host use a Unix socket that only the same user can open. TCP connections
are encrypted (CURVE), and processes without the keys of the connection file cannot connect.
Messages are numbers and validated JSON: no process runs code that another sends, and the master
limits what machines send.
"""

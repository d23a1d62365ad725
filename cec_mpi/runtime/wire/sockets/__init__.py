"""Messages between the master and machines that join, over sockets of ZeroMQ.

Machines on the master's host use a Unix socket that only the same user can open. TCP connections
are encrypted (CURVE), and processes without the keys of the connection file cannot connect.
Messages are numbers and JSON of known types: no process runs code that another sends, and the
master bounds what machines report.
"""

"""What is done with stores: encode, verify, repair, decode, add a machine.

May import: `core`, `files`, `store.format`, `store.making`, `store.reader`, `store.rebuilding`,
`store.sources`, `store.work`.
"""

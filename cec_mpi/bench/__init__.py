"""How fast it is, beside a limit or a peer that is measured in the same run on the same data.

`benchmark` is what all benchmarks have in common, `figures` what they find, `turns` how they take
it, `programs` and `scratch` what they start and leave behind; each other module or room is one
benchmark, or several of a kind.
"""

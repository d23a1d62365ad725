"""The league: the same work by this package and by what one would use in its place.

`work` is what all of them do; `coded`, `dealt`, `fastest`, `restarted` and `on_dask` are programs,
one of each way to do it, written as its users would; `shares` says who computes which rows without
a code; `contestants` starts them, and `league` has them do it in turn.
"""

"""Shards of a store on the machines of a session: one each as in the paper, or several."""

"""A machine, which multiplies the assigned rows of its shard, with emulated speeds and faults."""

"""What is done with stores: encode, verify, repair, decode, add a machine."""

"""The draft/verify loop: pure algorithm on token ids and numpy arrays."""

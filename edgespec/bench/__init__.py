"""An honest benchmark: does speculation pay on this machine, with this pair, for this text?"""

"""What an order, an effect and an approval are, and which values and transitions are legal.

Pure: no I/O, no clock, no Temporal. Everything else may import this room; it imports none of the others.
"""

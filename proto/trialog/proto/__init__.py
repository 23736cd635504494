"""What Trialog's services say to one another. Pure: no clock, no randomness, no I/O."""

"""The sandbox's PID 1: its C source, and how it is compiled once into the environment."""

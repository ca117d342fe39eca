"""Commands of ``raydr``, one module for each kind of input."""

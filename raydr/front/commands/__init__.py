"""The commands of ``raydr``, by what they are given: data and scenarios, sweeps, folders that are there, nothing."""

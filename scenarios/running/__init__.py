"""A run: from a scenario and its data to the files of a run folder."""

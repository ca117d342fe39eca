"""Running a scenario: from its data to the files of a run folder."""

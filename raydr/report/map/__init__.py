"""The interactive map of a page: its data, template and scripts."""

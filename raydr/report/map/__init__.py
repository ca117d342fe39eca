"""The interactive map of a page: what it is drawn from, its template and its scripts."""

"""The scenario as a document: its sections, the rules between them, and how it is read."""

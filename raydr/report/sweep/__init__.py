"""The pages of a sweep and of a published table, with their templates."""

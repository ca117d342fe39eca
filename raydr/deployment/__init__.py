"""Deployed runs, whose sites read their own files: a site's own acts, and the messages in place of a driver."""

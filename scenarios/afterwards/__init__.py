"""What a whole run folder is for: its audit, its page, its bounds, new rows and sites that join."""

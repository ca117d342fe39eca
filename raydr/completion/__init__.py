"""From client-to-landmark distances to a geometry of all rows."""

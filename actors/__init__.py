"""Everything that uses Ray: clients, coordinator, federation, placement."""

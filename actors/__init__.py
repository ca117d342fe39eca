"""Everything that knows Ray: clients, coordinator, federation, placement."""

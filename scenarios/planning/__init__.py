"""What a run will need, told before it starts: memory, time, messages, privacy."""

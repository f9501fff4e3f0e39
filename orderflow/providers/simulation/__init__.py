"""What the simulated providers are made of: the log that is their state, its books, their rules and injected faults."""

"""Three whole brokers in memory that replicate one partition, where the test decides what happens when."""

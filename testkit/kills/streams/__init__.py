"""Words are written and counted by Kafka Streams, which is killed together with its broker; each is counted once."""

"""All configurations, by subject: Kafka's, with their names, types and defaults, and kwire's own."""

"""The commands of kwire, as people and scripts run them."""

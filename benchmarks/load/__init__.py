"""The loads on the brokers: requests made once and sent over and over, so that the load costs little."""

"""What the brokers are put to work with: requests made once and sent over and over, so that the load costs little."""

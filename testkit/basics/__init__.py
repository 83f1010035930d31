"""What every other room may need, and what knows no broker."""

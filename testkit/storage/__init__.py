"""Disks, logs, and damage to them."""

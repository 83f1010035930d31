"""What a node needs from outside to be one of many: an ordered log (`kwire.metadata.log`), and who is alive."""

"""Groups that use the streams protocol (KIP-1071)."""
